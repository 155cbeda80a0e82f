//! Who is tested in a cell: a monitor behind the cache, or the bare device.

use super::Provider;
use super::acts;
use super::cell::{self, CellReport, Outcome};
use super::event::events;
use super::harness::{LIMIT_SECONDS, RAW};
use super::mapping::MAPPINGS;
use super::raw::RawRing;
use crate::exit::CliError;
use crate::sys;

/// Hidden: one cell.
#[derive(clap::Args, Debug)]
pub(crate) struct CellArgs {
    mapping: String,
    event: String,
    subject: String,
    provider: String,
}

/// Hidden: another process's change to a file.
#[derive(clap::Args, Debug)]
pub(crate) struct FileArgs {
    what: String,
    path: String,
    len_bytes: usize,
}

/// The other process of the events that need one.
pub(crate) fn in_other_process(args: &FileArgs) -> std::io::Result<()> {
    acts::file::in_other_process(&args.what, &args.path, args.len_bytes)
}

/// The monitors to test: those asked for, or all that start.
pub(crate) fn monitors(_provider: Provider, asked: &[String]) -> Result<Vec<String>, CliError> {
    if asked.is_empty() { Ok(vec![RAW.into()]) } else { Ok(asked.to_vec()) }
}

/// A cell's process: prints one line and ends without running anything else.
pub(crate) fn run_cell(args: &CellArgs) -> ! {
    sys::die_in(LIMIT_SECONDS);
    let report = play(args);
    let line = serde_json::to_string(&report).unwrap_or_default();
    println!("{line}");
    sys::end_now()
}

fn play(args: &CellArgs) -> CellReport {
    let mapping = MAPPINGS.iter().find(|m| m.name == args.mapping);
    let event = events().find(|e| e.name == args.event);
    let (Some(mapping), Some(event)) = (mapping, event) else {
        return CellReport::new(Outcome::Error, "no such cell");
    };
    match RawRing::new() {
        Ok(mut ring) => cell::play(mapping, event, &mut ring, &[]),
        Err(error) => CellReport::new(Outcome::Error, format!("no ring: {error}")),
    }
}
