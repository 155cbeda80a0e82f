//! `cargo xtask vm`: a command under a Debian kernel with soft-RoCE.

use crate::error::{EXIT_TIMEOUT, EXIT_XTASK, Error, Result};
use crate::lab::{self, Boot, Guest, Job, Kernel, Lab, Outcome};
use crate::{proc, workspace};
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
    /// An interactive shell after CMD, if any. `exit` ends it; Ctrl-A X kills it.
    #[arg(long)]
    shell: bool,
    /// Wait for gdb before the first instruction.
    #[arg(long)]
    gdb: bool,
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
    /// The command. One word is a script for sh; `pindown` as first word is built and carried.
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
        cpus: args.cpus,
        timeout: Duration::from_secs(seconds),
        append: args.append.clone(),
        gdb,
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
    let first = args.command.first().and_then(|w| w.split_whitespace().next());
    if first == Some("pindown") {
        files.push(build_pindown()?);
    }
    for test in &args.test {
        files.push(build_test(test)?);
    }
    Ok(files)
}

pub(crate) fn build_pindown() -> Result<PathBuf> {
    cargo(&["build", "-p", "pindown-cli"])?;
    Ok(workspace::target().join("debug/pindown"))
}

/// Builds `PACKAGE:NAME` and puts its binary under the plain name.
fn build_test(test: &str) -> Result<PathBuf> {
    let (package, name) = test.split_once(':').ok_or_else(|| {
        Error::Other(format!("--test {test}: want PACKAGE:NAME, or PACKAGE:lib for unit tests"))
    })?;
    let mut args = vec!["test", "--no-run", "--message-format=json", "-p", package];
    match name {
        "lib" => args.push("--lib"),
        name => args.extend(["--test", name]),
    }
    let messages = cargo(&args)?;
    let parsed = messages.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    let binary = parsed.filter_map(|m| Some(m.get("executable")?.as_str()?.to_owned())).next_back();
    let binary = binary.ok_or_else(|| Error::Other(format!("cargo built no binary for {test}")))?;
    let dir = workspace::lab().join("tests");
    let named = dir.join(name);
    let io = |source| Error::Io { action: "copy", path: named.clone(), source };
    std::fs::create_dir_all(&dir).map_err(io)?;
    std::fs::copy(binary, &named).map_err(io)?;
    Ok(named)
}

/// Runs cargo in the workspace, its progress on our stderr, and returns its stdout.
fn cargo(args: &[&str]) -> Result<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut c = Command::new(cargo);
    c.args(args).current_dir(workspace::root());
    let name = proc::describe(&c);
    let out = c.stderr(std::process::Stdio::inherit()).output();
    let out = out.map_err(|e| proc::spawn_error(&name, &e))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    Err(Error::Command { command: name, status: out.status.to_string(), output: String::new() })
}

fn terminal_size() -> (u16, u16) {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.map_or((24, 80), |s| (s.ws_row, s.ws_col))
}
