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
    /// Loads the programs and serves until this process ends. `None` where this user may not load
    /// them: the cells then look for a helper of the system.
    pub(crate) fn start() -> Result<Option<Self>, CliError> {
        let dir = std::env::temp_dir().join(format!("pindown-cells-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&dir).map_err(|error| {
            CliError::machine(
                format!("cannot make {}: {error}", dir.display()),
                "set TMPDIR to a writable directory",
            )
        })?;
        let helper = Self { dir };
        Ok(serve(helper.socket())?.then_some(helper))
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
fn serve(socket: PathBuf) -> Result<bool, CliError> {
    use pindown::helper::{HelperError, Limits, Server};
    let server = match Server::start(&socket, None, Limits::default()) {
        Ok(server) => server,
        Err(HelperError::Programs(_)) => return Ok(false),
        Err(error) => return Err(CliError::machine(chain(&error), "set TMPDIR to a shorter path")),
    };
    let thread = std::thread::Builder::new().name("cell-helper".into()).spawn(move || server.serve());
    match thread {
        Ok(_) => Ok(true),
        Err(error) => Err(CliError::machine(format!("no thread: {error}"), "raise `ulimit -u`")),
    }
}

#[cfg(not(feature = "ebpf"))]
fn serve(_socket: PathBuf) -> Result<bool, CliError> {
    Ok(false)
}
