//! `pindown bench`: what the cache itself takes, with a provider that does nothing, beside the floor of
//! this machine and, with `--peer`, another registration cache.

mod child;
mod report;
mod table;

use std::path::PathBuf;

use pindown_bench::{FIGURES, Figure, Floor, Kind, Pindown, Settings, figure, serve};

use crate::exit::{CliError, Verdict};
use crate::monitors::MonitorName;
use crate::ui::{Palette, progress};
use child::Child;
use report::{Measured, Report};

/// Micro-figures of the cache with a provider that does nothing, beside what this machine takes for
/// the least that a cache must do.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Who sees the address space change.
    #[arg(long, value_enum, default_value = "auto")]
    monitor: MonitorName,
    /// Another registration cache, measured in turn in the same run.
    #[arg(long, value_enum)]
    peer: Option<Peer>,
    /// Only these figures (repeatable); see the JSON for their names.
    #[arg(long = "figure", value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(FIGURES.iter().map(|f| f.name)))]
    figures: Vec<String>,
    /// Rounds of each figure; the median counts.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..1000))]
    rounds: u32,
    /// One JSON document on standard output.
    #[arg(long)]
    json: bool,
}

/// `--peer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Peer {
    /// UCX's `ucs_rcache`, of the installed libucx.
    Ucx,
}

/// The hidden verb of a measuring process.
#[derive(clap::Args, Debug)]
pub(crate) struct SubjectArgs {
    #[arg(long)]
    floor: bool,
    #[arg(long, value_enum, default_value = "auto")]
    monitor: MonitorName,
    figure: String,
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<Verdict, CliError> {
    let peer = args.peer.map(|Peer::Ucx| find_peer()).transpose()?;
    let chosen: Vec<&Figure> = match args.figures.is_empty() {
        true => FIGURES.iter().collect(),
        false => args.figures.iter().filter_map(|name| figure(name)).collect(),
    };
    let bar = progress(chosen.len() as u64, "measuring");
    let mut measured = Vec::new();
    for figure in chosen {
        bar.set_message(figure.name);
        measured.push(measure(figure, args, peer.as_ref())?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let report = Report::new(args.rounds, measured);
    if args.json {
        println!("{}", serde_json::to_string(&report).map_err(|e| CliError::Usage(e.to_string()))?);
    } else {
        print!("{}", table::render(&report, Palette::for_stdout()));
    }
    Ok(if report.is_bad() { Verdict::Bad } else { Verdict::Good })
}

/// One figure: all subjects prepare, then their rounds take turns.
fn measure(figure: &'static Figure, args: &Args, peer: Option<&PathBuf>) -> Result<Measured, CliError> {
    let monitor =
        if figure.uffd && args.monitor == MonitorName::Auto { MonitorName::Uffd } else { args.monitor };
    let own = std::env::current_exe().map_err(|e| CliError::machine(format!("{e}"), "mount /proc"))?;
    let mut subjects = vec![Child::start(&own, &["__subject", figure.name, "--monitor", monitor.name()])?];
    let peer_at = peer.map(|_| subjects.len());
    if let Some(peer) = peer {
        subjects.push(Child::start(peer, &[figure.name])?);
    }
    let floor_at = (!figure.floor.is_empty()).then_some(subjects.len());
    if floor_at.is_some() {
        subjects.push(Child::start(&own, &["__subject", figure.name, "--floor"])?);
    }
    for _ in 0..rounds(figure, args.rounds) {
        subjects.iter_mut().for_each(Child::round);
    }
    let mut results: Vec<_> = subjects.into_iter().map(|s| Some(s.finish())).collect();
    let mut take = |at: Option<usize>| at.and_then(|at| results[at].take());
    Ok(Measured::new(figure, take(Some(0)), take(peer_at), take(floor_at)))
}

/// What is the same each time needs no second round; what takes seconds gets a few.
fn rounds(figure: &Figure, wanted: u32) -> u32 {
    match figure.kind {
        Kind::MemoryDense | Kind::MemoryIsolated | Kind::Windows | Kind::Check => 1,
        Kind::Stall { .. } => wanted.min(3),
        _ => wanted,
    }
}

/// The measuring process.
pub(crate) fn run_subject(args: &SubjectArgs) -> Result<Verdict, CliError> {
    let served = if args.floor {
        serve::<Floor>(&args.figure, &Settings::default())
    } else {
        let monitor = args.monitor.choice()?;
        serve::<Pindown>(&args.figure, &Settings { monitor, ..Settings::default() })
    };
    served.map(|()| Verdict::Good).map_err(|why| CliError::machine(why, "see `pindown doctor`"))
}

/// The program that drives UCX: named by the environment, beside this one, or where `cargo xtask
/// bench-peers` builds it.
fn find_peer() -> Result<PathBuf, CliError> {
    const NAME: &str = "pindown-bench-ucx";
    let own = std::env::current_exe().ok();
    let beside = own.iter().flat_map(|own| own.ancestors().skip(1).take(2).map(PathBuf::from));
    let places = beside.flat_map(|dir| [dir.join(NAME), dir.join("bench-peers/release").join(NAME)]);
    let named = std::env::var_os("PINDOWN_BENCH_UCX").map(PathBuf::from);
    named.into_iter().chain(places).find(|path| path.is_file()).ok_or_else(|| {
        CliError::machine(
            format!("no {NAME}, which drives UCX's cache"),
            "run `cargo xtask bench-peers` in pindown's source: it installs libucx-dev and builds it; or set PINDOWN_BENCH_UCX",
        )
    })
}
