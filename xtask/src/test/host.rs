//! Steps on this machine's own kernel.

use super::hard;
use super::report::Verdict;
use super::steps::{Run, Step, User};
use crate::error::{At, Result};
use crate::lab::{Guest, Kernel, Lab};
use crate::{cargo, proc, workspace};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `pindown` exits with when the machine lacks what it takes.
pub(crate) const CANNOT: i32 = 3;

pub(crate) fn run(step: &Step, no_vm: bool) -> Verdict {
    let verdict = match &step.run {
        Run::Cargo(args) => status(cargo::command(args)),
        Run::Loom(args) => with_cfg("loom", args),
        Run::Shuttle(args) => with_cfg("shuttle", args),
        Run::Long(args) => {
            let mut c = cargo::command(args);
            c.env("PINDOWN_LONG", "1");
            status(c)
        }
        Run::Boots(_) if no_vm => Ok(Verdict::Skipped("--no-vm".into())),
        Run::Boots(args) => match Lab::prepare(Kernel::Backports, Guest::Base, false) {
            Ok(_) => status(cargo::command(args)),
            Err(e) => Ok(Verdict::Skipped(format!("the lab cannot be prepared: {e}"))),
        },
        Run::Fuzz(seconds) => hard::fuzz(*seconds),
        Run::Sanitized(sanitizer, args) => hard::sanitized(*sanitizer, args),
        Run::Storm(library, seconds) => hard::storm(*library, *seconds),
        Run::ReleaseHooks => hard::release_hooks(),
        Run::TestsAsPlainUser(args) => tests_as_plain_user(args),
        Run::Pindown(user, args) => pindown(*user, args),
        Run::CLibrary => crate::capi::verdict(),
    };
    verdict.unwrap_or_else(|e| Verdict::Failed(e.to_string()))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(super) fn status(mut command: Command) -> Result<Verdict> {
    let name = proc::describe(&command);
    let status = command.status().map_err(|e| proc::spawn_error(&name, &e))?;
    Ok(match status.code() {
        Some(0) => Verdict::Passed,
        _ => Verdict::Failed(format!("`{name}`: {status}")),
    })
}

/// In a target directory of its own.
fn with_cfg(cfg: &str, args: &[&str]) -> Result<Verdict> {
    let mut c = cargo::command(args);
    c.env("RUSTFLAGS", format!("--cfg {cfg}")).env("CARGO_TARGET_DIR", workspace::target().join(cfg));
    status(c)
}

fn pindown(user: User, args: &[&str]) -> Result<Verdict> {
    if user == User::Root && !is_root() {
        return Ok(Verdict::Skipped("needs root".into()));
    }
    let binary = cargo::build_pindown(false)?;
    let stage = Stage::new()?;
    let mut c = stage.command(&binary, user)?;
    let name = proc::describe(c.args(args));
    let status = c.status().map_err(|e| proc::spawn_error(&name, &e))?;
    Ok(match status.code() {
        Some(0) => Verdict::Passed,
        Some(CANNOT) => Verdict::Skipped("this machine cannot; it said why above".into()),
        _ => Verdict::Failed(format!("`{name}`: {status}")),
    })
}

fn tests_as_plain_user(args: &[&str]) -> Result<Verdict> {
    if !is_root() {
        return Ok(Verdict::Skipped("the step before ran as a plain user".into()));
    }
    let stage = Stage::new()?;
    let mut failed = Vec::new();
    for binary in cargo::build_tests(args)? {
        let mut c = stage.command(&binary, User::Plain)?;
        eprintln!("    {} as uid {PLAIN_UID}", binary.display());
        if !c.status().at("run", &binary)?.success() {
            failed.push(binary.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    Ok(match failed.is_empty() {
        true => Verdict::Passed,
        false => Verdict::Failed(failed.join(" ")),
    })
}

const PLAIN_UID: &str = "65534";

/// A directory that any user may read, for binaries: the checkout may lie where only root can go.
struct Stage(PathBuf);

impl Stage {
    fn new() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("pindown-test-{}", std::process::id()));
        fs::create_dir_all(&dir).at("create", &dir)?;
        // Open to all, like /tmp: tests write temporary files where they run.
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777)).at("open up", &dir)?;
        Ok(Self(dir))
    }

    /// A copy of `binary`, run in this directory by `user`.
    fn command(&self, binary: &Path, user: User) -> Result<Command> {
        let copy = self.0.join(binary.file_name().unwrap_or_default());
        fs::copy(binary, &copy).at("copy", binary)?;
        let mut c = if user == User::Plain && is_root() {
            let mut c = Command::new("setpriv");
            c.args(["--reuid", PLAIN_UID, "--regid", PLAIN_UID, "--clear-groups", "--"]).arg(&copy);
            c.env("HOME", &self.0);
            c
        } else {
            Command::new(&copy)
        };
        c.current_dir(&self.0);
        Ok(c)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}
