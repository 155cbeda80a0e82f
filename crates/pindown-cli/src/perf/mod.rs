//! `pindown perf`: real data through registered buffers, every byte compared.

mod ahead;
mod figures;
mod lane;
mod plan;
mod pool;
mod report;
mod session;
mod sim_wire;
mod table;
mod verbs_wire;
mod wire;

pub(crate) use figures::Figures;
pub(crate) use plan::{Group, Plan, Until, size_name};
pub(crate) use pool::Pool;

use std::time::Duration;

use crate::engine::DeviceArgs;
use crate::exit::{CliError, Verdict};
use crate::monitors::MonitorName;
use crate::peer::Op;
use crate::ui::Palette;

/// Moves real data through registered buffers, compares every byte with what the CPU sees, and
/// shows what keeping registrations in a coherent cache is worth. Is to io_uring registration
/// what ib_write_bw is to verbs.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The device.
    #[arg(long, value_enum, default_value = "io-uring")]
    provider: Provider,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Who sees the address space change; "none" shows what goes wrong without.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) monitor: MonitorName,
    /// How buffers get registered (repeatable; all but async and everything by default).
    #[arg(long = "mode", value_enum)]
    modes: Vec<Mode>,
    /// Bytes a transfer, e.g. 64K or 1M (repeatable; 4K, 64K and 1M by default).
    #[arg(long = "size", value_name = "BYTES", value_parser = plan::parse_size)]
    sizes: Vec<usize>,
    /// What the program does to its memory meanwhile (repeatable; none and remap by default).
    #[arg(long = "churn", value_enum)]
    churns: Vec<Churn>,
    /// Ready the pages of a changed buffer before it is used (and have a device that faults by itself do
    /// so), off the clock; in modes cached, async and everything.
    #[arg(long)]
    prefetch: bool,
    /// Threads, each with a ring, a cache and buffers of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Seconds that each line of the result is measured for.
    #[arg(long, conflicts_with = "ops", value_parser = plan::parse_seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Transfers that each thread makes for each line of the result.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    ops: Option<u64>,
    /// Between two hosts (verbs): wait here for the other, at ADDRESS or ADDRESS:PORT.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "", conflicts_with = "connect")]
    pub(crate) listen: Option<String>,
    /// Between two hosts (verbs): the host that listens. This one's options say what is run.
    #[arg(long, value_name = "HOST")]
    pub(crate) connect: Option<String>,
    /// Between two hosts: how bytes move (repeatable; all by default).
    #[arg(long = "op", value_enum, value_name = "OP")]
    pub(crate) transfers: Vec<Op>,
    /// One JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `--provider`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Provider {
    /// Fixed buffers of io_uring.
    IoUring,
    /// RDMA memory regions.
    Verbs,
    /// A simulated device, for where there is none: bytes are copied, registering sleeps 20 µs, and the
    /// figures are no device's.
    Sim,
}

/// `--mode`: how a buffer gets registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// pindown's cache is asked for each transfer.
    Cached,
    /// Registered before each transfer, deregistered after it.
    PerOp,
    /// By the program, when it makes the buffer; deregistered before it changes it.
    Preregistered,
    /// Never: the bytes are copied through one registered buffer.
    Copy,
    /// pindown's queue is asked for each transfer while the one before it moves.
    Async,
    /// pindown is asked for the keys of whatever the transfer moves ("register everything").
    Everything,
}

impl Mode {
    const ALL: [Self; 4] = [Self::Preregistered, Self::Cached, Self::PerOp, Self::Copy];

    /// Whether pindown keeps the registrations coherent in it.
    pub(crate) fn is_coherent(self) -> bool {
        matches!(self, Self::Cached | Self::Async | Self::Everything)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Async => "async",
            Self::Everything => "everything",
            Self::Cached => "cached",
            Self::PerOp => "per-op",
            Self::Preregistered => "preregistered",
            Self::Copy => "copy",
        }
    }
}

/// `--churn`: what happens to one buffer every 16 transfers, just before it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Churn {
    /// Nothing.
    None,
    /// free and malloc.
    Free,
    /// munmap and mmap at the same address.
    Remap,
    /// Those in turn with MADV_DONTNEED and mremap in place.
    Mixed,
}

impl Churn {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Free => "free",
            Self::Remap => "remap",
            Self::Mixed => "mixed",
        }
    }
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<Verdict, CliError> {
    if args.listen.is_some() || args.connect.is_some() {
        return match args.provider {
            Provider::Verbs => crate::peer::run(args),
            _ => Err(CliError::Usage("--listen and --connect need --provider verbs".into())),
        };
    }
    match args.provider {
        Provider::IoUring => run_on::<wire::RingWire>(args),
        Provider::Verbs => run_on::<verbs_wire::VerbsWire>(args),
        Provider::Sim => run_on::<sim_wire::SimWire>(args),
    }
}

fn run_on<W: wire::Wire>(args: &Args) -> Result<Verdict, CliError> {
    let longest = plan::longest(&args.sizes);
    let mut lanes = session::lanes::<W>(args.monitor, &args.device, args.threads, longest)?;
    lanes.iter_mut().for_each(|lane| lane.set_prefetch(args.prefetch));
    let plan = plan::Plan::new(args, lanes[0].max_bytes() / u64::from(args.threads))?;
    let runs = session::run(&plan, &mut lanes)?;
    let report = report::Report::new::<W>(lanes[0].monitor_name(), runs);
    if args.json {
        println!("{}", serde_json::to_string(&report).map_err(|e| CliError::Usage(e.to_string()))?);
    } else {
        plan.skipped.iter().for_each(|note| println!("{note}"));
        print!("{}", table::render(&report, W::REGISTERS, Palette::for_stdout(), crate::ui::columns()));
    }
    Ok(if report.is_bad() { Verdict::Bad } else { Verdict::Good })
}
