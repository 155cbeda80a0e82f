//! `cargo xtask test`: everything that shows the project works, with one line at the end that counts.

mod guest;
mod hard;
mod host;
mod report;
mod steps;

pub(crate) use host::CANNOT;
pub(crate) use report::Verdict;

use crate::error::Result;
use report::Report;
use std::time::Instant;
use steps::{GuestStep, STEPS, Step};

/// Runs the tests: of the workspace, the loom models, the command line on this kernel, and the lab.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// All kernels and guests, and what takes long.
    #[arg(long)]
    full: bool,
    /// Boot no guest.
    #[arg(long)]
    no_vm: bool,
    /// Only the steps whose name contains this (again and again).
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// A skipped step counts as failed: for a machine that must be able to run everything.
    #[arg(long)]
    strict: bool,
    /// Name the steps and stop there.
    #[arg(long)]
    list: bool,
}

impl Args {
    fn wants(&self, name: &str, full: bool) -> bool {
        let named = || self.only.iter().any(|part| name.contains(part.as_str()));
        if self.only.is_empty() { self.full || !full } else { named() }
    }
}

pub(crate) fn run(args: Args) -> Result<i32> {
    let steps: Vec<&Step> = STEPS.iter().filter(|s| args.wants(s.name, s.full)).collect();
    let guests: Vec<GuestStep> = steps::guests().into_iter().filter_map(|g| wanted_rows(&args, g)).collect();
    if args.list {
        list(&steps, &guests);
        return Ok(0);
    }
    let total = steps.len() + guests.len();
    let mut report = Report::new(args.strict);
    for (n, step) in steps.iter().enumerate() {
        announce(n + 1, total, step.name);
        let start = Instant::now();
        let verdict = host::run(step, args.no_vm);
        report.add(step.name, start.elapsed(), verdict);
    }
    for (n, guest) in guests.iter().enumerate() {
        announce(steps.len() + n + 1, total, &guest.name());
        guest::run(guest, args.no_vm, &mut report);
    }
    Ok(report.print())
}

/// The guest step cut down to the rows asked for, if any is left.
fn wanted_rows(args: &Args, mut guest: GuestStep) -> Option<GuestStep> {
    let name = guest.name();
    guest.rows.retain(|row| args.wants(&format!("{name}/{}", row.name), guest.full));
    (!guest.rows.is_empty()).then_some(guest)
}

fn list(steps: &[&Step], guests: &[GuestStep]) {
    for step in steps {
        println!("{}", step.name);
    }
    for guest in guests {
        for row in &guest.rows {
            println!("{}/{}", guest.name(), row.name);
        }
    }
}

fn announce(n: usize, total: usize, name: &str) {
    eprintln!("\n=== [{n}/{total}] {name}");
}
