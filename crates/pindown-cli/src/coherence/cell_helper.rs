//! The eBPF programs, loaded once for all cells: each cell's process would take a second to load its own.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use crate::exit::CliError;
use crate::monitors::HELPER_VARIABLE;
#[cfg(feature = "ebpf")]
use crate::monitors::chain;

/// A helper that serves the cells of this run, on a socket that this user alone can reach.
#[derive(Debug)]
pub(crate) struct CellHelper {
    dir: PathBuf,
}

impl CellHelper {
    /// Loads the programs and serves until this process ends.
    pub(crate) fn start() -> Result<Self, CliError> {
        let dir = std::env::temp_dir().join(format!("pindown-cells-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&dir).map_err(|error| {
            CliError::machine(
                format!("cannot make {}: {error}", dir.display()),
                "set TMPDIR to a writable directory",
            )
        })?;
        let helper = Self { dir };
        serve(helper.socket()).map(|()| helper)
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// What tells a cell's process about it.
    pub(crate) fn variable(&self) -> (&'static str, PathBuf) {
        (HELPER_VARIABLE, self.socket())
    }
}

impl Drop for CellHelper {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[cfg(feature = "ebpf")]
fn serve(socket: PathBuf) -> Result<(), CliError> {
    use pindown::helper::{Limits, Server};
    let refused = |error: &dyn std::error::Error| {
        CliError::machine(format!("no helper: {}", chain(error)), "run as root, or without --helper")
    };
    let server = Server::start(&socket, None, Limits::default()).map_err(|error| refused(&error))?;
    let thread = std::thread::Builder::new().name("cell-helper".into()).spawn(move || server.serve());
    thread.map(drop).map_err(|error| refused(&error))
}

#[cfg(not(feature = "ebpf"))]
fn serve(_socket: PathBuf) -> Result<(), CliError> {
    Err(CliError::machine("this build has no helper", "build with `--features ebpf`"))
}
