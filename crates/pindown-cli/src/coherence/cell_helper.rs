//! The eBPF programs, loaded once for all cells: each cell's process would take a second to load its own.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use crate::monitors::{HELPER_VARIABLE, MonitorName};

/// A helper that serves the cells of this run, on a socket that this user alone can reach.
#[derive(Debug)]
pub(crate) struct CellHelper {
    dir: PathBuf,
}

impl CellHelper {
    /// Starts it if a monitor needs it. `None`: it is not needed, or does not start here, and then
    /// each cell loads its own programs.
    pub(crate) fn start(monitors: &[String]) -> Option<Self> {
        let needed = monitors.iter().any(|name| name == MonitorName::Ebpf.name());
        let dir = std::env::temp_dir().join(format!("pindown-cells-{}", std::process::id()));
        if !needed || DirBuilder::new().mode(0o700).create(&dir).is_err() {
            return None;
        }
        let helper = Self { dir };
        serve(helper.socket()).then_some(helper)
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
fn serve(socket: PathBuf) -> bool {
    use pindown::helper::{Limits, Server};
    match Server::start(&socket, None, Limits::default()) {
        // Serves until this process ends.
        Ok(server) => {
            std::thread::Builder::new().name("cell-helper".into()).spawn(move || server.serve()).is_ok()
        }
        Err(_) => false,
    }
}

#[cfg(not(feature = "ebpf"))]
fn serve(_socket: PathBuf) -> bool {
    false
}
