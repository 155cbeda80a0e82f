//! Monitors: one file each.

mod auto;
#[cfg(feature = "ebpf")]
pub mod ebpf;
mod manual;
mod none;
#[cfg(feature = "uffd")]
mod uffd;
mod uncached;

#[cfg(any(feature = "uffd", feature = "ebpf"))]
pub(crate) use auto::explain;
pub use auto::{Chosen, auto};
pub use manual::Manual;
pub use none::NoMonitor;
#[cfg(feature = "uffd")]
pub use uffd::{Uffd, UffdOptions};
pub use uncached::Uncached;
