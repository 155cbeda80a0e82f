//! Runs the plan: modes in turn, threads together.

use std::time::Duration;

use indicatif::ProgressBar;

use super::Mode;
use super::figures::Figures;
use super::lane::{Lane, Stage};
use super::plan::{Group, Plan, Until};
use super::report::Run;
use super::wire::Wire;
use crate::engine::DeviceArgs;
use crate::exit::CliError;
use crate::monitors::MonitorName;
use crate::ui;

/// Each line is measured in so many turns, the others' between them, so that what else the machine
/// does meanwhile hits all alike.
const ROUNDS: u32 = 64;

/// A lane for each thread.
pub(crate) fn lanes<W: Wire>(
    monitor: MonitorName,
    device: &DeviceArgs,
    threads: u32,
    lane_bytes: usize,
) -> Result<Vec<Lane<W>>, CliError> {
    (0..threads).map(|_| Lane::new(monitor, device, lane_bytes)).collect()
}

/// All lines of the result.
pub(crate) fn run<W: Wire>(plan: &Plan, lanes: &mut [Lane<W>]) -> Result<Vec<Run>, CliError> {
    let turns = plan.groups.len() as u64 * plan.modes.len() as u64 * u64::from(ROUNDS);
    let bar = ui::progress(turns, "perf");
    let mut runs = Vec::new();
    for group in &plan.groups {
        runs.extend(run_group(group, plan, lanes, &bar)?);
    }
    bar.finish_and_clear();
    Ok(runs)
}

/// A lane with its stages and figures, one of each a mode.
struct Worker<'a, W: Wire> {
    lane: &'a mut Lane<W>,
    stages: Vec<(Stage<W>, Figures)>,
}

fn run_group<W: Wire>(
    group: &Group,
    plan: &Plan,
    lanes: &mut [Lane<W>],
    bar: &ProgressBar,
) -> Result<Vec<Run>, CliError> {
    let mut workers =
        lanes.iter_mut().map(|lane| prepare(lane, group, &plan.modes)).collect::<Result<Vec<_>, _>>()?;
    warm_up(&mut workers, plan.modes.len());
    for round in 0..ROUNDS {
        for mode in 0..plan.modes.len() {
            turn(&mut workers, mode, plan.until.share(round, ROUNDS));
            bar.inc(1);
        }
    }
    let threads = workers.len();
    let mut totals: Vec<_> = plan.modes.iter().map(|_| Figures::new()).collect();
    for worker in workers {
        finish(worker, &mut totals)?;
    }
    Ok(plan.modes.iter().zip(&totals).map(|(mode, total)| Run::new(group, *mode, threads, total)).collect())
}

fn prepare<'a, W: Wire>(
    lane: &'a mut Lane<W>,
    group: &Group,
    modes: &[Mode],
) -> Result<Worker<'a, W>, CliError> {
    let stages = modes.iter().map(|mode| lane.prepare(group, *mode).map(|stage| (stage, Figures::new())));
    let stages = stages.collect::<Result<Vec<_>, _>>().map_err(cannot_register)?;
    Ok(Worker { lane, stages })
}

fn cannot_register(error: String) -> CliError {
    CliError::machine(error, "raise `ulimit -l`, or take a smaller --size or fewer --threads")
}

/// Touches code and memory once, uncounted.
fn warm_up<W: Wire>(workers: &mut [Worker<'_, W>], modes: usize) {
    for mode in 0..modes {
        turn(workers, mode, Until::Elapsed(Duration::from_millis(2)));
        for worker in &mut *workers {
            worker.stages[mode].1 = Figures::new();
        }
    }
}

/// One mode's turn, on all threads at a time.
fn turn<W: Wire>(workers: &mut [Worker<'_, W>], mode: usize, until: Until) {
    let work = |worker: &mut Worker<'_, W>| {
        let (stage, figures) = &mut worker.stages[mode];
        worker.lane.slice(stage, until, figures);
    };
    std::thread::scope(|scope| {
        let (first, others) = workers.split_first_mut().expect("at least one thread");
        for worker in others {
            scope.spawn(move || work(worker));
        }
        work(first);
    });
}

fn finish<W: Wire>(worker: Worker<'_, W>, totals: &mut [Figures]) -> Result<(), CliError> {
    for ((stage, mut figures), total) in worker.stages.into_iter().zip(totals) {
        figures.finish();
        total.add(&figures);
        worker.lane.put_away(stage).map_err(cannot_register)?;
    }
    Ok(())
}
