//! Running what was compiled: as ourselves, as a plain user, under valgrind.

use super::compile::Compiler;
use crate::error::{At, Error, Result};
use crate::test::CANNOT;
use crate::{proc, workspace};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a run came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Good,
    /// Why, in the program's own words.
    Skipped(String),
    Bad(String),
}

/// Errors of memory, and what nothing points to any more.
const VALGRIND: [&str; 4] =
    ["--quiet", "--error-exitcode=99", "--errors-for-leak-kinds=definite", "--fair-sched=try"];

/// A directory that every user can read, with the library and the programs in it.
pub(crate) struct Stage {
    dir: PathBuf,
    library: PathBuf,
}

impl Stage {
    pub(crate) fn new(compiler: &Compiler) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("pindown-capi-{}", std::process::id()));
        fs::create_dir_all(&dir).at("create", &dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777)).at("open up", &dir)?;
        let from = compiler.library();
        let library = dir.join(from.file_name().unwrap_or_default());
        fs::copy(&from, &library).at("copy", &from)?;
        Ok(Self { dir, library })
    }

    /// Runs `program ARGS`; `LIBRARY` among them is the shared library's path.
    pub(crate) fn run(&self, program: &Path, args: &[&str], as_plain_user: bool) -> Result<Outcome> {
        let copy = self.dir.join(program.file_name().unwrap_or_default());
        fs::copy(program, &copy).at("copy", program)?;
        let mut c = if as_plain_user {
            let mut c = Command::new("setpriv");
            c.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).arg(&copy);
            c
        } else {
            Command::new(&copy)
        };
        self.outcome(self.with_args(&mut c, args))
    }

    /// With AddressSanitizer, and its LeakSanitizer if `leaks`.
    pub(crate) fn sanitized(&self, program: &Path, args: &[&str], leaks: bool) -> Result<Outcome> {
        let mut c = Command::new(program);
        c.env("ASAN_OPTIONS", if leaks { "detect_leaks=1" } else { "detect_leaks=0" });
        self.outcome(self.with_args(&mut c, args))
    }

    /// Under valgrind. Without `leaks` no search for them, which would go through the GiB that a live cache reserves.
    pub(crate) fn valgrind(&self, program: &Path, args: &[&str], leaks: bool) -> Result<Outcome> {
        let Some(valgrind) = proc::find_program("valgrind") else {
            return Ok(Outcome::Skipped("valgrind is not installed".into()));
        };
        let mut c = Command::new(valgrind);
        c.args(VALGRIND).arg(if leaks { "--leak-check=full" } else { "--leak-check=no" }).arg(program);
        self.outcome(self.with_args(&mut c, args))
    }

    fn with_args<'a>(&self, c: &'a mut Command, args: &[&str]) -> &'a mut Command {
        let library = self.library.to_string_lossy();
        c.args(args.iter().map(|a| if *a == "LIBRARY" { &library } else { *a }))
    }

    fn outcome(&self, c: &mut Command) -> Result<Outcome> {
        // The test's own directory first, and nothing of ours: no trace, no helper.
        c.env("LD_LIBRARY_PATH", &self.dir).current_dir(&self.dir);
        let name = proc::describe(c);
        let out = c.stdin(Stdio::null()).output().map_err(|e| proc::spawn_error(&name, &e))?;
        let said = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        let error = || format!("{name}: {}\n{said}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
        Ok(match out.status.code() {
            Some(0) => {
                said.lines().filter(|l| l.starts_with("skipped")).for_each(|l| println!("      {l}"));
                Outcome::Good
            }
            Some(CANNOT) => Outcome::Skipped(said),
            _ => Outcome::Bad(error()),
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.dir).ok();
    }
}

/// What the shared library exports, and that it stays loaded.
pub(crate) fn exports(compiler: &Compiler) -> Result<Outcome> {
    let library = compiler.library();
    let symbols = proc::output(Command::new("nm").args(["-D", "--defined-only"]).arg(&library))?;
    let names: Vec<&str> = symbols.lines().filter_map(|l| l.split_whitespace().nth(2)).collect();
    let header = workspace::root().join("crates/pindown-capi/pindown.h");
    let declared = fs::read_to_string(&header).at("read", &header)?;
    let foreign: Vec<_> = names.iter().filter(|n| !n.starts_with("pindown_")).collect();
    let hidden: Vec<_> = names.iter().filter(|n| !declared.contains(&format!("{n}("))).collect();
    let dynamic = proc::output(Command::new("readelf").arg("-d").arg(&library))?;
    let flags = [("NODELETE", "it could be unloaded"), ("libpindown.so.", "it has no soname")];
    let missing: Vec<_> =
        flags.iter().filter(|(flag, _)| !dynamic.contains(flag)).map(|(_, why)| why).collect();
    if names.len() < 50 {
        return Err(Error::Other(format!("{} exports only {} functions", library.display(), names.len())));
    }
    Ok(match foreign.is_empty() && hidden.is_empty() && missing.is_empty() {
        true => Outcome::Good,
        false => Outcome::Bad(format!("foreign {foreign:?}, not in the header {hidden:?}, {missing:?}")),
    })
}
