//! [`Line`]: one host's figures of one mode and operation.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Op, Side};
use crate::perf::{Churn, Figures, Group, Mode};

/// What is counted while it runs.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) mode: Mode,
    pub(crate) op: Op,
    /// Of the transfers that this host began; its cache's in both roles.
    pub(crate) figures: Figures,
    /// Time in acquire and put, or register and deregister, in both roles.
    pub(crate) registering: Duration,
    pub(crate) registrations: u64,
}

impl Line {
    pub(crate) fn new(mode: Mode, op: Op) -> Self {
        Self { mode, op, figures: Figures::new(), registering: Duration::ZERO, registrations: 0 }
    }
}

/// The line in the report: the fields of `perf` on one host, and more.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The host that began these transfers and whose cache this is.
    pub(crate) side: Side,
    pub(crate) op: Op,
    pub(crate) mode: Mode,
    pub(crate) size_bytes: usize,
    pub(crate) churn: Churn,
    pub(crate) threads: usize,
    pub(crate) ops: u64,
    /// Bytes by the time of acquire, transfer and put on this host.
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
    pub(crate) churns: u64,
    /// Registrations that this host made, also as the target of the other's transfers.
    pub(crate) registrations: u64,
    /// Time that this host spent to get and give back registrations, in both roles.
    pub(crate) registering_ns: u64,
}

impl Row {
    pub(crate) fn new(side: Side, group: &Group, mut line: Line) -> Self {
        line.figures.finish();
        let figures = line.figures;
        Self {
            side,
            op: line.op,
            mode: line.mode,
            size_bytes: group.size_bytes,
            churn: group.churn,
            threads: 1,
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
            churns: figures.churns,
            registrations: line.registrations,
            registering_ns: line.registering.as_nanos() as u64,
        }
    }
}
