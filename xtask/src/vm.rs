//! `cargo xtask vm`: a command under a Debian kernel with soft-RoCE.

use crate::error::{At, EXIT_TIMEOUT, EXIT_XTASK, Error, Result};
use crate::lab::{self, Boot, Guest, Job, Kernel, Lab, Outcome};
use crate::{cargo, workspace};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Boots, runs CMD in /job of the guest, and ends as CMD ended.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The kernel, by Debian suite.
    #[arg(long, value_enum, default_value_t = Kernel::Backports)]
    kernel: Kernel,
    /// The userland and network.
    #[arg(long, value_enum, default_value_t = Guest::Base)]
    guest: Guest,
    /// Memory of the guest in MiB.
    #[arg(long, value_name = "MIB")]
    memory: Option<u32>,
    /// Processors of the guest.
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Kill the guest after so many seconds, boot included.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    /// A file, or the contents of a directory, to find under /job (again and again).
    #[arg(long, value_name = "PATH")]
    file: Vec<PathBuf>,
    /// Build a test target of the workspace and carry its binary, as /job/NAME (again and again).
    #[arg(long, value_name = "PACKAGE:NAME")]
    test: Vec<String>,
    /// Build a package's shared library and carry it (again and again).
    #[arg(long, value_name = "PACKAGE")]
    library: Vec<String>,
    /// Build and carry `pindown` though CMD does not start with it.
    #[arg(long)]
    pindown: bool,
    /// Build what is carried with optimisations.
    #[arg(long)]
    release: bool,
    /// An interactive shell after CMD, if any. `exit` ends it; Ctrl-A X kills it.
    #[arg(long)]
    shell: bool,
    /// Wait for gdb before the first instruction.
    #[arg(long)]
    gdb: bool,
    /// What the guest measures in nanoseconds are instructions: its clocks advance by them. One processor.
    #[arg(long)]
    count: bool,
    /// One more word for the kernel's command line (again and again).
    #[arg(long, value_name = "WORD")]
    append: Vec<String>,
    /// Prepare anew from today's packages.
    #[arg(long)]
    refresh: bool,
    /// Prepare and stop there.
    #[arg(long)]
    prepare: bool,
    /// No line about versions.
    #[arg(long, short)]
    quiet: bool,
    /// The command. One word is a script for sh; where it runs `pindown`, that is built and carried.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(crate) fn run(args: Args) -> Result<i32> {
    if args.command.is_empty() && !args.shell && !args.prepare {
        return Err(Error::Other("nothing to run: give `-- CMD`, --shell or --prepare".into()));
    }
    let files = carried(&args)?;
    let lab = Lab::prepare(args.kernel, args.guest, args.refresh)?;
    if !args.quiet {
        eprintln!("lab: {}", lab.versions());
    }
    if args.prepare {
        return Ok(0);
    }
    let boot = boot(&args);
    let job = Job {
        guest: args.guest,
        script: lab::script(&args.command),
        files,
        shell: args.shell.then(terminal_size),
    };
    report(boot.run(&lab, &job)?, &args)
}

fn boot(args: &Args) -> Boot {
    let socket = std::env::temp_dir().join(format!("lab-{}.gdb", std::process::id()));
    let gdb = args.gdb.then_some(socket);
    if let Some(socket) = &gdb {
        eprintln!("lab: gdb -ex 'target remote {}'", socket.display());
    }
    // A person at a shell or in gdb takes the time it takes.
    let interactive = args.shell || args.gdb;
    let seconds = if interactive { 24 * 3600 } else { args.timeout };
    Boot {
        memory_mib: args.memory.unwrap_or_else(|| args.guest.memory_mib()),
        cpus: if args.count { 1 } else { args.cpus },
        timeout: Duration::from_secs(seconds),
        append: args.append.clone(),
        gdb,
        count: args.count,
    }
}

fn report(outcome: Outcome, args: &Args) -> Result<i32> {
    match outcome {
        Outcome::Exited(code) => Ok(code),
        Outcome::SetupFailed(what) => {
            eprintln!("lab: {what}");
            Ok(EXIT_XTASK)
        }
        Outcome::Crashed { console, .. } => {
            eprintln!("lab: the guest ended without a status; its console:\n{}", lab::tail(&console));
            Ok(EXIT_XTASK)
        }
        Outcome::TimedOut { console } => {
            let seconds = args.timeout;
            eprintln!("lab: time is up after {seconds} s (--timeout); the console's last lines:");
            eprintln!("{}", lab::tail(&console));
            Ok(EXIT_TIMEOUT)
        }
    }
}

/// The files to carry, built first where they are of this workspace.
fn carried(args: &Args) -> Result<Vec<PathBuf>> {
    let mut files = args.file.clone();
    if args.pindown || args.command.first().is_some_and(|first| runs_pindown(first)) {
        files.push(cargo::build_pindown(args.release)?);
    }
    for package in &args.library {
        files.push(cargo::build_library(package, args.release)?);
    }
    for test in &args.test {
        files.push(build_test(test, args.release)?);
    }
    Ok(files)
}

/// Whether `pindown` is a word of this command or script.
fn runs_pindown(script: &str) -> bool {
    script.split(|c: char| !c.is_ascii_alphanumeric() && !"_-./".contains(c)).any(|word| word == "pindown")
}

/// Builds `PACKAGE:NAME` and puts its binary under the plain name.
fn build_test(test: &str, release: bool) -> Result<PathBuf> {
    let (package, name) = test.split_once(':').ok_or_else(|| {
        Error::Other(format!("--test {test}: want PACKAGE:NAME, or PACKAGE:lib for unit tests"))
    })?;
    let mut args = vec!["test", "--all-features", "-p", package];
    if release {
        args.push("--release");
    }
    match name {
        "lib" => args.push("--lib"),
        name => args.extend(["--test", name]),
    }
    let binary = cargo::build_tests(&args)?.pop();
    let binary = binary.ok_or_else(|| Error::Other(format!("cargo built no binary for {test}")))?;
    let dir = workspace::lab().join("tests");
    let named = dir.join(name);
    fs::create_dir_all(&dir).at("create", &dir)?;
    // A run beside this one may be reading the old copy: replace it, do not write into it.
    let fresh = dir.join(format!("{name}.{}", std::process::id()));
    // Without what only debuggers read, which is most of it and would be unpacked into the guest's memory.
    let stripped = Command::new("strip").arg("--strip-debug").arg("-o").args([&fresh, &binary]).status();
    if !stripped.is_ok_and(|status| status.success()) {
        fs::copy(&binary, &fresh).at("copy", &binary)?;
    }
    fs::rename(&fresh, &named).at("rename", &fresh)?;
    Ok(named)
}

fn terminal_size() -> (u16, u16) {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.map_or((24, 80), |s| (s.ws_row, s.ws_col))
}

#[cfg(test)]
mod tests {
    #[test]
    fn pindown_is_carried_where_it_is_run() {
        let runs = super::runs_pindown;
        assert!(runs("pindown") && runs("for i in 1 2; do pindown doctor; done") && runs("a|pindown"));
        assert!(!runs("uname -r") && !runs("./pindown doctor") && !runs("pindown-helper"));
    }
}
