//! Runs the plan: modes in turn, threads together.

use std::time::Duration;

use indicatif::ProgressBar;

use super::Mode;
use super::figures::Figures;
use super::lane::{Lane, Stage};
use super::plan::{Group, Plan, Until};
use super::report::Run;
use crate::exit::CliError;
use crate::monitors::MonitorName;
use crate::ui;

/// Each line is measured in so many turns, the others' between them.
const ROUNDS: u32 = 4;

/// A lane for each thread.
pub(crate) fn lanes(monitor: MonitorName, threads: u32, lane_bytes: usize) -> Result<Vec<Lane>, CliError> {
    (0..threads).map(|_| Lane::new(monitor, lane_bytes)).collect()
}

/// All lines of the result.
pub(crate) fn run(plan: &Plan, lanes: &mut [Lane]) -> Result<Vec<Run>, CliError> {
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
struct Worker<'a> {
    lane: &'a mut Lane,
    stages: Vec<(Stage, Figures)>,
}

fn run_group(
    group: &Group,
    plan: &Plan,
    lanes: &mut [Lane],
    bar: &ProgressBar,
) -> Result<Vec<Run>, CliError> {
    let mut workers =
        lanes.iter_mut().map(|lane| prepare(lane, group, &plan.modes)).collect::<Result<Vec<_>, _>>()?;
    let share = plan.until.share(ROUNDS);
    warm_up(&mut workers, plan.modes.len());
    for _ in 0..ROUNDS {
        for mode in 0..plan.modes.len() {
            turn(&mut workers, mode, share);
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

fn prepare<'a>(lane: &'a mut Lane, group: &Group, modes: &[Mode]) -> Result<Worker<'a>, CliError> {
    let stages = modes.iter().map(|mode| lane.prepare(group, *mode).map(|stage| (stage, Figures::new())));
    let stages = stages.collect::<Result<Vec<_>, _>>().map_err(cannot_register)?;
    Ok(Worker { lane, stages })
}

fn cannot_register(error: String) -> CliError {
    CliError::machine(error, "raise `ulimit -l`, or take a smaller --size or fewer --threads")
}

/// Touches code and memory once, uncounted.
fn warm_up(workers: &mut [Worker<'_>], modes: usize) {
    for mode in 0..modes {
        turn(workers, mode, Until::Elapsed(Duration::from_millis(2)));
        for worker in &mut *workers {
            worker.stages[mode].1 = Figures::new();
        }
    }
}

/// One mode's turn, on all threads at a time.
fn turn(workers: &mut [Worker<'_>], mode: usize, until: Until) {
    let work = |worker: &mut Worker<'_>| {
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

fn finish(worker: Worker<'_>, totals: &mut [Figures]) -> Result<(), CliError> {
    for ((stage, mut figures), total) in worker.stages.into_iter().zip(totals) {
        figures.finish();
        total.add(&figures);
        worker.lane.put_away(stage).map_err(cannot_register)?;
    }
    Ok(())
}
