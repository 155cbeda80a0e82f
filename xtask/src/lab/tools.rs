//! qemu and kmod: those on PATH, else Debian's packages unpacked privately.

use super::apt::{self, Apt};
use super::artefact;
use crate::error::Result;
use crate::proc;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const QEMU: &str = "qemu-system-x86_64";

/// Programs of the host.
pub(crate) struct Tools {
    /// Where packages lie unpacked, if the host lacked one.
    private: Option<PathBuf>,
    pub(crate) version: String,
}

impl Tools {
    pub(crate) fn prepare(refresh: bool) -> Result<Self> {
        let here = [QEMU, "kmod"].iter().all(|p| proc::find_program(p).is_some());
        let private = if here { None } else { Some(unpacked(refresh)?) };
        let mut tools = Self { private, version: String::new() };
        let text = proc::output(tools.qemu().arg("--version"))?;
        let version = text.split_whitespace().nth(3).unwrap_or("?");
        tools.version = format!("qemu {version}");
        Ok(tools)
    }

    /// qemu with its firmware found.
    pub(crate) fn qemu(&self) -> Command {
        self.command(QEMU, &[])
    }

    /// qemu that dies with this process, whatever kills it.
    pub(crate) fn bound_qemu(&self) -> Command {
        let mut c = self.command("setpriv", &["--pdeathsig", "KILL"]);
        c.arg(self.path(QEMU));
        if let Some(dir) = &self.private {
            for share in ["usr/share/qemu", "usr/share/seabios"] {
                c.arg("-L").arg(dir.join(share));
            }
        }
        c
    }

    pub(crate) fn depmod(&self) -> Command {
        // One program under several names: it goes by its first argument.
        let mut c = self.command("kmod", &[]);
        c.arg0("depmod");
        c
    }

    fn path(&self, program: &str) -> PathBuf {
        let dirs = ["usr/bin", "usr/sbin", "sbin", "bin"];
        let private = self.private.iter().flat_map(|d| dirs.map(|s| d.join(s).join(program)));
        let found = private.into_iter().find(|p| p.exists());
        found.or_else(|| proc::find_program(program)).unwrap_or_else(|| program.into())
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut c = Command::new(self.path(program));
        c.args(args);
        if let Some(dir) = &self.private {
            let lib = |sub: &str| dir.join(sub).join("x86_64-linux-gnu").display().to_string();
            c.env("LD_LIBRARY_PATH", format!("{}:{}", lib("usr/lib"), lib("lib")));
        }
        c
    }
}

fn unpacked(refresh: bool) -> Result<PathBuf> {
    let suite = apt::host_suite();
    let recipe = format!("1 {suite}");
    artefact::get("tools", &recipe, refresh, |dir| {
        let status = Path::new("/var/lib/dpkg/status");
        let apt = Apt::new("tools", &[&suite], status)?;
        let packages = apt.download(&["qemu-system-x86", "kmod"])?;
        apt::unpack(&packages, dir)?;
        let qemu = packages.iter().find(|p| p.name == "qemu-system-x86");
        Ok(format!("qemu-system-x86 {} ({suite})", qemu.map_or("of the host", |p| &p.version)))
    })
}
