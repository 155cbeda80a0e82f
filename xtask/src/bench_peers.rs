//! `cargo xtask bench-peers`: pindown's cache beside UCX's, on this machine.

use std::path::Path;

use crate::error::{Error, Result};
use crate::{cargo, proc, workspace};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only build what the comparison needs.
    #[arg(long)]
    build_only: bool,
    /// Handed on to `pindown bench`.
    #[arg(last = true)]
    bench: Vec<String>,
}

const HEADER: &str = "/usr/include/ucs/memory/rcache.h";

/// Installs, builds, and runs `pindown bench --peer ucx`; the exit status is the bench's.
pub(crate) fn run(args: Args) -> Result<i32> {
    install()?;
    let target = workspace::target().join("bench-peers");
    let mut build = cargo::command(&["build", "--release", "--locked"]);
    build.current_dir(workspace::root().join("bench-peers")).env("CARGO_TARGET_DIR", &target);
    status(build)?;
    let pindown = cargo::build_pindown(true)?;
    if args.build_only {
        println!("built; run {} bench --peer ucx", pindown.display());
        return Ok(0);
    }
    let mut bench = std::process::Command::new(pindown);
    bench.args(["bench", "--peer", "ucx"]).args(args.bench);
    bench.env("PINDOWN_BENCH_UCX", target.join("release/pindown-bench-ucx"));
    let name = proc::describe(&bench);
    let status = bench.status().map_err(|e| proc::spawn_error(&name, &e))?;
    Ok(status.code().unwrap_or(1))
}

/// UCX's headers and a C compiler, by apt where they are missing.
fn install() -> Result<()> {
    let missing: Vec<&str> = [
        (!Path::new(HEADER).exists()).then_some("libucx-dev"),
        proc::find_program("cc").is_none().then_some("gcc"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.join(" ");
    // Only root can install; elsewhere this says what to do.
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    if !is_root || proc::find_program("apt-get").is_none() {
        let remedy = format!("install {packages} (Debian's names), as root");
        return Err(Error::Missing { what: "what UCX is built against".into(), remedy });
    }
    println!("installing {packages}");
    let mut apt = std::process::Command::new("apt-get");
    apt.args(["install", "-q", "-y", "--no-install-recommends"]).args(&missing);
    status(apt)
}

fn status(mut command: std::process::Command) -> Result<()> {
    let name = proc::describe(&command);
    let status = command.status().map_err(|e| proc::spawn_error(&name, &e))?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::Command { command: name, status: status.to_string(), output: String::new() }),
    }
}
