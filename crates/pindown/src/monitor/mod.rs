//! Monitors: one file each.

mod manual;
mod none;

pub use manual::Manual;
pub use none::NoMonitor;
