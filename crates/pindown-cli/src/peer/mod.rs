//! `pindown perf --listen` and `--connect`: RDMA WRITE, READ and SEND between two hosts, each way,
//! with both hosts' memory changing, every byte compared where it arrives.

mod host;
mod line;
mod link;
mod play;
mod report;

use serde::{Deserialize, Serialize};

use crate::exit::{CliError, Verdict};
use crate::perf::{Args, Group, Mode, Plan, Until};
use crate::ui::Palette;
use host::Host;
use line::Line;
use link::Link;
use report::Report;

/// Where the hosts find each other unless told.
const PORT: u16 = 7471;

/// Which host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    /// The one that was started with `--connect`; it decides what is run.
    Connector,
    /// The one that was started with `--listen`.
    Listener,
}

/// `--op`: how bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Op {
    /// RDMA WRITE into the other host's buffer.
    Write,
    /// RDMA READ from the other host's buffer.
    Read,
    /// SEND into a receive that the other host posted.
    Send,
}

impl Op {
    const ALL: [Self; 3] = [Self::Write, Self::Read, Self::Send];

    fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Send => "send",
        }
    }
}

/// What both hosts run, as the connecting one says.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Script {
    version: String,
    groups: Vec<Group>,
    modes: Vec<Mode>,
    ops: Vec<Op>,
    /// Transfers for each mode, operation and direction.
    transfers: u64,
}

/// Transfers of each line unless `--ops` says otherwise.
const TRANSFERS: u64 = 64;

/// The verb, for one of the two hosts.
pub(crate) fn run(args: &Args) -> Result<Verdict, CliError> {
    let (side, mut link) = meet(args)?;
    let cache = crate::engine::verbs_cache(args.monitor, &args.device)?;
    let script = agree(args, side, cache.max_bytes(), &mut link)?;
    let mut host = Host::connect(cache, &args.device, side, link)?;
    let own = play::run(&mut host, &script).map_err(|what| failed(&what))?;
    let theirs = host.exchange(&own).map_err(|error| failed(&error.to_string()))?;
    let report = Report::new(host.monitor_name(), side, own, theirs);
    if args.json {
        println!("{}", serde_json::to_string(&report).map_err(|e| CliError::Usage(e.to_string()))?);
    } else {
        print!("{}", report.render(Palette::for_stdout()));
    }
    Ok(if report.is_bad() { Verdict::Bad } else { Verdict::Good })
}

fn failed(what: &str) -> CliError {
    CliError::machine(
        format!("the transfers ended early: {what}"),
        "see the other host's message; check the link with ibv_rc_pingpong",
    )
}

fn meet(args: &Args) -> Result<(Side, Link), CliError> {
    let met = match (&args.listen, &args.connect) {
        (Some(at), _) => Link::listen(at, PORT).map(|link| (Side::Listener, link)),
        (None, Some(host)) => Link::connect(host, PORT).map(|link| (Side::Connector, link)),
        (None, None) => return Err(CliError::Usage("give --listen or --connect HOST".into())),
    };
    met.map_err(|error| {
        CliError::machine(
            format!("the hosts do not find each other: {error}"),
            format!("start one with --listen, the other with --connect HOST; TCP port {PORT} must be open"),
        )
    })
}

/// The connecting host decides; both must be of one version.
fn agree(args: &Args, side: Side, budget_bytes: u64, link: &mut Link) -> Result<Script, CliError> {
    let script: std::io::Result<Script> = match side {
        Side::Connector => {
            let script = script(args, budget_bytes)?;
            link.send(&script).map(|()| script)
        }
        Side::Listener => link.receive(),
    };
    let script = script.map_err(|error| failed(&error.to_string()))?;
    match script.version == env!("CARGO_PKG_VERSION") {
        true => Ok(script),
        false => Err(CliError::machine(
            format!("the other host runs pindown {}", script.version),
            "run the same version on both",
        )),
    }
}

fn script(args: &Args, budget_bytes: u64) -> Result<Script, CliError> {
    let plan = Plan::new(args, budget_bytes)?;
    let transfers = match plan.until {
        Until::Ops(ops) => ops,
        Until::Elapsed(_) if args.seconds.is_some() => {
            return Err(CliError::Usage("between two hosts give --ops, not --seconds".into()));
        }
        Until::Elapsed(_) => TRANSFERS,
    };
    let mut modes = plan.modes;
    modes.retain(|mode| !matches!(mode, Mode::Copy | Mode::Async | Mode::Everything));
    if modes.is_empty() {
        return Err(CliError::Usage(
            "between two hosts there are modes cached, per-op and preregistered".into(),
        ));
    }
    let ops = if args.transfers.is_empty() { Op::ALL.to_vec() } else { args.transfers.clone() };
    Ok(Script { version: env!("CARGO_PKG_VERSION").into(), groups: plan.groups, modes, ops, transfers })
}
