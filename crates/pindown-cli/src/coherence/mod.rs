//! `pindown coherence`: every event on every kind of memory, against a device that really pins.

mod acts;
mod cached;
mod cell;
mod cell_helper;
mod event;
mod harness;
mod hugepages;
mod mapping;
mod oracle;
mod raw;
mod raw_region;
mod report;
mod scene;
mod subject;
mod table;
mod traits;
mod worker_stack;

pub(crate) use subject::{CellArgs, FileArgs, in_other_process, run_cell};

use crate::engine::DeviceArgs;
use crate::exit::{CliError, Verdict};
use crate::monitors::MonitorName;
use crate::ui::{self, Palette};
use crate::{machine, sys};

/// Runs every event on every kind of memory, each in a process of its own, moves real bytes
/// through registered buffers afterwards, and compares them with what the CPU sees.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The pinning device.
    #[arg(long, value_enum, default_value = "io-uring")]
    provider: Provider,
    #[command(flatten)]
    device: DeviceArgs,
    /// A monitor to test (repeatable); all that start here by default. "none" shows the hazard.
    #[arg(long = "monitor", value_enum, value_name = "NAME")]
    monitors: Vec<MonitorName>,
    /// Let each cell load the eBPF programs itself. By default they are loaded once and served to all
    /// cells, where this user may load them.
    #[arg(long)]
    own_programs: bool,
    /// Only kinds of memory whose name contains this.
    #[arg(long, value_name = "TEXT")]
    mapping: Option<String>,
    /// Only events whose name contains this.
    #[arg(long, value_name = "TEXT")]
    event: Option<String>,
    /// One JSON document on standard output.
    #[arg(long)]
    json: bool,
}

/// The devices that pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Provider {
    /// Fixed buffers of io_uring.
    IoUring,
    /// RDMA memory regions.
    Verbs,
}

impl Provider {
    fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io-uring",
            Self::Verbs => "verbs",
        }
    }
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<Verdict, CliError> {
    let named =
        |filter: &Option<String>, name: &str| filter.as_ref().is_none_or(|f| name.contains(f.as_str()));
    let jobs = harness::jobs(|m, e| named(&args.mapping, m.name) && named(&args.event, e.name));
    if jobs.is_empty() {
        return Err(CliError::Usage("no event and mapping have such names".into()));
    }
    let monitors = subject::monitors(args.provider, &args.device, &args.monitors)?;
    let _huge_pages = hugepages::HugePages::reserve();
    let provider = [vec![args.provider.name().to_owned()], args.device.to_words()].concat();
    let bar = ui::progress(jobs.len() as u64, "coherence");
    let shared = !args.own_programs && monitors.iter().any(|name| name == MonitorName::Ebpf.name());
    let helper = shared.then(cell_helper::CellHelper::start).transpose()?.flatten();
    harness::Harness { provider: &provider, monitors: &monitors, helper }.run_all(&jobs, || bar.inc(1));
    bar.finish_and_clear();
    let rows = report::rows(&jobs, &monitors);
    let report =
        report::Report::new(args.provider.name(), machine::kernel_release(), sys::effective_uid(), rows);
    if args.json {
        println!("{}", serde_json::to_string(&report).map_err(|e| CliError::Usage(e.to_string()))?);
    } else {
        print!("{}", table::render(&report, &monitors, Palette::for_stdout()));
    }
    Ok(if report.is_bad() { Verdict::Bad } else { Verdict::Good })
}
