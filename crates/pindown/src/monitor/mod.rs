//! Monitors: one file each.

#[cfg(feature = "ebpf")]
pub mod ebpf;
mod manual;
mod none;
#[cfg(feature = "uffd")]
mod uffd;
mod uncached;

pub use manual::Manual;
pub use none::NoMonitor;
#[cfg(feature = "uffd")]
pub use uffd::{Uffd, UffdOptions};
pub use uncached::Uncached;
