//! `cargo xtask fuzz`: the fuzz targets, with cargo-fuzz on the stable toolchain.

use crate::error::{Error, Result};
use crate::{cargo, proc, workspace};

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
    if proc::find_program("cargo-fuzz").is_none() {
        let (what, remedy) = ("cargo-fuzz".into(), "cargo install cargo-fuzz --locked".into());
        return Err(Error::Missing { what, remedy });
    }
    let all: Vec<&str> = match args.targets.is_empty() {
        true => TARGETS.to_vec(),
        false => args.targets.iter().map(String::as_str).collect(),
    };
    let mut failed = Vec::new();
    for target in all {
        if !fuzz(target, args.seconds)? {
            failed.push(target);
        }
    }
    println!("fuzz: {} s a target, failed: {failed:?}", args.seconds);
    Ok(i32::from(!failed.is_empty()))
}

/// What it found lies in `fuzz/artifacts/TARGET`; run that file with `cargo fuzz run TARGET FILE`.
fn fuzz(target: &str, seconds: u32) -> Result<bool> {
    let time = format!("-max_total_time={seconds}");
    let mut command = cargo::command(&["fuzz", "run", target, "--", &time, "-timeout=20", "-max_len=4096"]);
    // Sanitizers and coverage are unstable flags of the stable compiler.
    command.env("RUSTC_BOOTSTRAP", "1").current_dir(workspace::root());
    let name = proc::describe(&command);
    let status = command.status().map_err(|e| proc::spawn_error(&name, &e))?;
    Ok(status.success())
}
