//! Monitors: one file each.

mod manual;
mod none;
mod uncached;

pub use manual::Manual;
pub use none::NoMonitor;
pub use uncached::Uncached;
