//! The rows, as JSON and as figures.

use serde::Serialize;

use super::cell::Outcome;
use super::harness::Job;

/// A line of the result: one mapping, event and monitor.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) mapping: &'static str,
    pub(crate) event: &'static str,
    pub(crate) monitor: String,
    pub(crate) outcome: Outcome,
    pub(crate) hazard: bool,
    pub(crate) detail: String,
}

/// The JSON document.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) provider: String,
    pub(crate) kernel: String,
    pub(crate) uid: u32,
    pub(crate) rows: Vec<Row>,
    /// Rows whose event really happened to registered memory.
    pub(crate) executed: usize,
    pub(crate) stale: usize,
    pub(crate) waived: usize,
    pub(crate) errors: usize,
    /// Executed rows whose event moved wrong bytes without a monitor.
    pub(crate) hazards: usize,
}

impl Report {
    pub(crate) fn new(provider: &str, kernel: String, uid: u32, rows: Vec<Row>) -> Self {
        let count = |f: &dyn Fn(&Row) -> bool| rows.iter().filter(|r| f(r)).count();
        Self {
            provider: provider.to_owned(),
            kernel,
            uid,
            executed: count(&|r| r.outcome.executed()),
            stale: count(&|r| r.outcome == Outcome::Stale),
            waived: count(&|r| r.outcome == Outcome::Waived),
            errors: count(&|r| r.outcome == Outcome::Error),
            hazards: count(&|r| r.outcome.executed() && r.hazard),
            rows,
        }
    }

    /// Whether the claim failed.
    pub(crate) fn is_bad(&self) -> bool {
        self.rows.iter().any(|r| r.outcome.is_bad())
    }
}

/// The rows of finished jobs, monitor by monitor.
pub(crate) fn rows(jobs: &[Job], monitors: &[String]) -> Vec<Row> {
    monitors
        .iter()
        .enumerate()
        .flat_map(|(i, monitor)| jobs.iter().filter_map(move |job| row(job, i, monitor)))
        .collect()
}

fn row(job: &Job, index: usize, monitor: &str) -> Option<Row> {
    let report = job.monitored.get()?.get(index)?.clone();
    let hazard = job.raw.get().is_some_and(|raw| raw.outcome == Outcome::Stale);
    Some(Row {
        mapping: job.mapping.name,
        event: job.event.name,
        monitor: monitor.to_owned(),
        outcome: report.outcome,
        hazard,
        detail: report.detail,
    })
}
