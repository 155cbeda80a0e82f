//! Who is tested in a cell: a monitor behind the cache, or the bare device.

use super::Provider;
use super::acts;
use super::cached::CachedRing;
use super::cell::{self, CellReport, Outcome};
use super::event::{Event, events};
use super::harness::LIMIT_SECONDS;
use super::mapping::{MAPPINGS, Mapping};
use super::raw::RawRing;
use crate::exit::CliError;
use crate::monitors::MonitorName;
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

/// The monitors to test: those asked for, or all that start. Each must start.
pub(crate) fn monitors(provider: Provider, asked: &[MonitorName]) -> Result<Vec<String>, CliError> {
    if provider == Provider::Verbs {
        return Err(CliError::machine("the verbs provider is not in this build", "take --provider io-uring"));
    }
    let names = |monitors: &[MonitorName]| monitors.iter().map(|m| m.name().to_owned()).collect();
    if !asked.is_empty() {
        asked.iter().try_for_each(|monitor| CachedRing::new(*monitor).map(drop))?;
        return Ok(names(asked));
    }
    let mut refusals = Vec::new();
    let mut starting = MonitorName::AUTOMATIC.to_vec();
    starting.retain(|monitor| CachedRing::new(*monitor).map_err(|error| refusals.push(error)).is_ok());
    match (starting.is_empty(), refusals.pop()) {
        (true, Some(error)) => Err(error),
        _ => Ok(names(&starting)),
    }
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
    match MonitorName::from_name(&args.subject) {
        Some(monitor) => play_cached(mapping, event, monitor),
        None => play_raw(mapping, event),
    }
}

fn play_cached(mapping: &Mapping, event: &Event, monitor: MonitorName) -> CellReport {
    match CachedRing::new(monitor) {
        Ok(mut device) => {
            let waived = device.waived();
            cell::play(mapping, event, &mut device, &waived)
        }
        Err(error) => CellReport::new(Outcome::Error, error.to_string()),
    }
}

/// [`RAW`]: no cache, no monitor.
fn play_raw(mapping: &Mapping, event: &Event) -> CellReport {
    match RawRing::new() {
        Ok(mut ring) => cell::play(mapping, event, &mut ring, &[]),
        Err(error) => CellReport::new(Outcome::Error, format!("no ring: {error}")),
    }
}
