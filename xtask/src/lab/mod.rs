//! The lab: Debian's own kernels with soft-RoCE, in qemu.
//!
//! Three kinds of artefact are prepared once and cached: the host's tools, a kernel (with its few
//! modules as a cpio), a userland (as a cpio). A boot joins them with a small cpio of the job.

mod apt;
mod artefact;
mod boot;
mod cpio;
mod job;
mod kernel;
mod tools;
mod userland;
mod workdir;

pub(crate) use boot::{Boot, Outcome, tail};
pub(crate) use job::{Job, quote, script};
pub(crate) use kernel::Kernel;
pub(crate) use tools::Tools;
pub(crate) use userland::Guest;

use crate::error::Result;
use std::path::PathBuf;

/// Exit status when the guest reports one that is no number.
const BAD_STATUS: i32 = crate::error::EXIT_XTASK;

/// What a boot needs, prepared.
pub(crate) struct Lab {
    pub(crate) tools: Tools,
    pub(crate) kernel_dir: PathBuf,
    pub(crate) userland_dir: PathBuf,
}

impl Lab {
    /// Prepares what is not yet cached, side by side: each part waits mostly for the network.
    pub(crate) fn prepare(kernel: Kernel, guest: Guest, refresh: bool) -> Result<Self> {
        let tools = Tools::prepare(refresh)?;
        let (kernel_dir, userland_dir) = std::thread::scope(|s| {
            let kernel = s.spawn(|| kernel::prepare(kernel, &tools, refresh));
            let userland = userland::prepare(guest.userland(), refresh);
            (kernel.join().expect("no panic in preparation"), userland)
        });
        Ok(Self { tools, kernel_dir: kernel_dir?, userland_dir: userland_dir? })
    }

    /// One line that says what runs.
    pub(crate) fn versions(&self) -> String {
        format!(
            "Linux {}, {}, {}",
            artefact::note(&self.kernel_dir),
            artefact::note(&self.userland_dir),
            self.tools.version
        )
    }
}
