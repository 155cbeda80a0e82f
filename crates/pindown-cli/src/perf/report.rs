//! The result, as JSON.

use serde::Serialize;

use super::figures::Figures;
use super::plan::Group;
use super::wire::Wire;
use super::{Churn, Mode};
use crate::machine;

/// A line of the result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) mode: Mode,
    pub(crate) size_bytes: usize,
    pub(crate) churn: Churn,
    pub(crate) threads: usize,
    pub(crate) ops: u64,
    /// Bytes by the time of acquire, transfer and put; filling and comparing are outside.
    pub(crate) bytes_per_s: f64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) invalidations: u64,
    pub(crate) uncached: u64,
    pub(crate) registered_bytes_peak: u64,
    pub(crate) stale: u64,
    pub(crate) errors: u64,
    /// Transfers during which another thread got the CPU: in all counts, not in `bytes_per_s`.
    pub(crate) preempted: u64,
    /// How often a buffer's memory was changed under its registration.
    pub(crate) churns: u64,
    pub(crate) buffers: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_error: Option<String>,
}

impl Run {
    pub(crate) fn new(group: &Group, mode: Mode, threads: usize, figures: &Figures) -> Self {
        Self {
            mode,
            size_bytes: group.size_bytes,
            churn: group.churn,
            threads,
            ops: figures.ops(),
            bytes_per_s: figures.bytes_per_s,
            p50_ns: figures.times.value_at_quantile(0.5),
            p99_ns: figures.times.value_at_quantile(0.99),
            hits: figures.hits,
            misses: figures.misses,
            invalidations: figures.invalidations,
            uncached: figures.uncached,
            registered_bytes_peak: figures.registered_bytes_peak,
            stale: figures.stale,
            errors: figures.errors,
            preempted: figures.preempted,
            churns: figures.churns,
            buffers: group.buffers,
            first_error: figures.first_error.clone(),
        }
    }
}

/// The document.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) provider: &'static str,
    pub(crate) monitor: &'static str,
    pub(crate) kernel: String,
    pub(crate) runs: Vec<Run>,
}

impl Report {
    pub(crate) fn new<W: Wire>(monitor: &'static str, runs: Vec<Run>) -> Self {
        Self { provider: W::PROVIDER, monitor, kernel: machine::kernel_release(), runs }
    }

    /// Whether mode cached moved a wrong byte, or anything failed.
    pub(crate) fn is_bad(&self) -> bool {
        self.runs.iter().any(|run| run.errors > 0 || (run.mode.is_coherent() && run.stale > 0))
    }

    /// The line of another mode beside `run`.
    pub(crate) fn beside(&self, run: &Run, mode: Mode) -> Option<&Run> {
        let same = |r: &&Run| r.mode == mode && r.size_bytes == run.size_bytes && r.churn == run.churn;
        self.runs.iter().find(same)
    }
}
