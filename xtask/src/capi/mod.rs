//! The C library: its header, its installation, its tests in C.

mod cases;
mod compile;
mod header;
mod install;
mod runs;

pub(crate) use cases::verdict;
pub(crate) use compile::guest_program;
pub(crate) use header::{Args as HeaderArgs, run as header};
pub(crate) use install::{Args as InstallArgs, run as install};

use crate::workspace;
use std::path::PathBuf;

/// The crate of the C library.
fn crate_dir() -> PathBuf {
    workspace::root().join("crates/pindown-capi")
}

/// Where tests build and install.
fn work_dir() -> PathBuf {
    workspace::target().join("capi")
}
