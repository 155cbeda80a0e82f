//! Who is tested in a cell: a monitor behind the cache, or the bare device.

use super::Provider;
use super::acts;
use super::cached::Cached;
use super::cell::{self, CellReport, Outcome};
use super::event::{Event, events};
use super::harness::START_SECONDS;
use super::mapping::{MAPPINGS, Mapping};
use super::oracle::Device;
use super::raw::RawRing;
use super::raw_region::RawRegion;
use crate::engine::{DeviceArgs, Engine, UringEngine, VerbsEngine};
use crate::exit::CliError;
use crate::monitors::MonitorName;
use crate::sys;

/// Hidden: one cell.
#[derive(clap::Args, Debug)]
pub(crate) struct CellArgs {
    mapping: String,
    event: String,
    subject: String,
    #[arg(value_enum)]
    provider: Provider,
    #[command(flatten)]
    device: DeviceArgs,
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
pub(crate) fn monitors(
    provider: Provider,
    device: &DeviceArgs,
    asked: &[MonitorName],
) -> Result<Vec<String>, CliError> {
    match provider {
        Provider::IoUring => starting::<UringEngine>(device, asked, &MonitorName::AUTOMATIC),
        Provider::Verbs => {
            let all = [&MonitorName::AUTOMATIC[..], &[MonitorName::Odp]].concat();
            starting::<VerbsEngine>(device, asked, &all)
        }
    }
}

fn starting<E: Engine>(
    device: &DeviceArgs,
    asked: &[MonitorName],
    all: &[MonitorName],
) -> Result<Vec<String>, CliError> {
    let names = |monitors: &[MonitorName]| monitors.iter().map(|m| m.name().to_owned()).collect();
    if !asked.is_empty() {
        asked.iter().try_for_each(|monitor| Cached::<E>::new(*monitor, device).map(drop))?;
        return Ok(names(asked));
    }
    let mut refusals = Vec::new();
    let mut starting = all.to_vec();
    starting
        .retain(|monitor| Cached::<E>::new(*monitor, device).map_err(|error| refusals.push(error)).is_ok());
    match (starting.is_empty(), refusals.pop()) {
        (true, Some(error)) => Err(error),
        _ => Ok(names(&starting)),
    }
}

/// A cell's process: prints one line and ends without running anything else.
pub(crate) fn run_cell(args: &CellArgs) -> ! {
    sys::die_in(START_SECONDS);
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
    match (MonitorName::from_name(&args.subject), args.provider) {
        (Some(monitor), Provider::IoUring) => play_cached::<UringEngine>(mapping, event, monitor, args),
        (Some(monitor), Provider::Verbs) => play_cached::<VerbsEngine>(mapping, event, monitor, args),
        (None, Provider::IoUring) => play_raw(mapping, event, RawRing::new()),
        (None, Provider::Verbs) => play_raw(mapping, event, RawRegion::<VerbsEngine>::new(&args.device)),
    }
}

fn play_cached<E: Engine>(
    mapping: &Mapping,
    event: &Event,
    monitor: MonitorName,
    args: &CellArgs,
) -> CellReport {
    match Cached::<E>::new(monitor, &args.device) {
        Ok(mut device) => {
            let waived = device.waived();
            cell::play(mapping, event, &mut device, &waived)
        }
        Err(error) => CellReport::new(Outcome::Error, error.reason()),
    }
}

/// [`RAW`](super::harness::RAW): no cache, no monitor.
fn play_raw<D: Device>(mapping: &Mapping, event: &Event, device: std::io::Result<D>) -> CellReport {
    match device {
        Ok(mut device) => cell::play(mapping, event, &mut device, &[]),
        Err(error) => CellReport::new(Outcome::Error, format!("no device: {error}")),
    }
}
