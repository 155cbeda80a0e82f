//! pindown: memory registration that stays right while the address space changes.

pub mod monitor;
pub mod provider;
mod sys;

pub use pindown_core::*;
pub use sys::host::LinuxHost;

/// What fuzz targets reach inside. Not part of the interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::sys::maps::{MapsLine, Perms, parse_line};
}
