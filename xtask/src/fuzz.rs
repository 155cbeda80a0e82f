//! `cargo xtask fuzz`: the fuzz targets, with cargo-fuzz on the stable toolchain.

use crate::error::{Error, Result};
use crate::{cargo, proc};
use std::process::{Child, Command};

/// The targets in `fuzz/`.
const TARGETS: &[&str] = &["cache_ops", "interval_map", "pending", "maps_parser"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long each target runs.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Only these targets.
    #[arg(long = "target", value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(TARGETS))]
    targets: Vec<String>,
}

/// Runs each target; the exit status is 1 if one found something.
pub(crate) fn run(args: Args) -> Result<i32> {
    if let Some(missing) = missing() {
        return Err(missing);
    }
    let all: Vec<&str> = match args.targets.is_empty() {
        true => TARGETS.to_vec(),
        false => args.targets.iter().map(String::as_str).collect(),
    };
    build()?;
    let failed = fuzz_all(&all, args.seconds)?;
    println!("fuzz: {} s a target, failed: {failed:?}", args.seconds);
    Ok(i32::from(!failed.is_empty()))
}

/// What there is no fuzzing without.
pub(crate) fn missing() -> Option<Error> {
    let (what, remedy) = ("cargo-fuzz".into(), "cargo install cargo-fuzz --locked".into());
    proc::find_program("cargo-fuzz").is_none().then_some(Error::Missing { what, remedy })
}

fn build() -> Result<()> {
    let mut command = cargo_fuzz(&["build"]);
    let name = proc::describe(&command);
    let status = command.status().map_err(|e| proc::spawn_error(&name, &e))?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::Command { command: name, status: status.to_string(), output: String::new() }),
    }
}

/// As many at a time as there are processors; the names of those that found something.
fn fuzz_all<'t>(targets: &[&'t str], seconds: u32) -> Result<Vec<&'t str>> {
    let at_a_time = std::thread::available_parallelism().map_or(1, usize::from);
    let mut failed = Vec::new();
    for some in targets.chunks(at_a_time) {
        let running: Vec<_> = some.iter().map(|target| (target, start(target, seconds))).collect();
        for (target, child) in running {
            let name = || format!("cargo fuzz run {target}");
            let status = child?.wait().map_err(|e| proc::spawn_error(&name(), &e))?;
            failed.extend((!status.success()).then_some(*target));
        }
    }
    Ok(failed)
}

/// What it finds lies in `fuzz/artifacts/TARGET`; run that file with `cargo fuzz run TARGET FILE`.
fn start(target: &str, seconds: u32) -> Result<Child> {
    let time = format!("-max_total_time={seconds}");
    let limits = ["--", &time, "-timeout=20", "-max_len=4096", "-print_final_stats=1"];
    let mut command = cargo_fuzz(&[&["run", target], &limits[..]].concat());
    let name = proc::describe(&command);
    command.spawn().map_err(|e| proc::spawn_error(&name, &e))
}

/// Sanitizers and coverage are unstable flags of the stable compiler.
fn cargo_fuzz(args: &[&str]) -> Command {
    let mut command = cargo::command(&[&["fuzz"], args].concat());
    command.env("RUSTC_BOOTSTRAP", "1");
    command
}
