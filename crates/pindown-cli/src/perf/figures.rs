//! What a line of the result is made of.

use std::time::Duration;

use hdrhistogram::Histogram;
use pindown::Stats;

/// Figures of one mode on one thread; added up over rounds and threads.
#[derive(Debug)]
pub(crate) struct Figures {
    /// From before the request for a registration to after its put, each in ns.
    pub(crate) times: Histogram<u64>,
    /// The sum of those.
    pub(crate) busy: Duration,
    pub(crate) bytes: u64,
    /// Transfers that are not in the rate.
    pub(crate) preempted: u64,
    /// Sum over threads of each one's bytes by its busy seconds.
    pub(crate) bytes_per_s: f64,
    /// Transfers whose bytes were not what the CPU sees.
    pub(crate) stale: u64,
    pub(crate) errors: u64,
    pub(crate) churns: u64,
    /// Of the cache alone.
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) invalidations: u64,
    pub(crate) uncached: u64,
    pub(crate) registered_bytes_peak: u64,
    /// What went wrong first.
    pub(crate) first_error: Option<String>,
}

impl Figures {
    pub(crate) fn new() -> Self {
        Self {
            // 1 ns to 60 s at three digits: constants, so this cannot fail.
            times: Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds"),
            busy: Duration::ZERO,
            bytes: 0,
            preempted: 0,
            bytes_per_s: 0.0,
            stale: 0,
            errors: 0,
            churns: 0,
            hits: 0,
            misses: 0,
            invalidations: 0,
            uncached: 0,
            registered_bytes_peak: 0,
            first_error: None,
        }
    }

    pub(crate) fn ops(&self) -> u64 {
        self.times.len()
    }

    /// A transfer that ended well, right or not.
    pub(crate) fn transfer(&mut self, time: Duration, bytes: usize, right: bool) {
        self.times.saturating_record((time.as_nanos() as u64).max(1));
        self.busy += time;
        self.bytes += bytes as u64;
        self.stale += u64::from(!right);
    }

    /// The last transfer was interrupted: the kernel gave the CPU to another thread. It is left out
    /// of the rate, which is to say what registration and copying cost, not how busy the machine is.
    pub(crate) fn was_preempted(&mut self, time: Duration, bytes: usize) {
        self.busy -= time;
        self.bytes -= bytes as u64;
        self.preempted += 1;
    }

    pub(crate) fn error(&mut self, error: String) {
        self.errors += 1;
        self.first_error.get_or_insert(error);
    }

    /// What the cache did between two snapshots.
    pub(crate) fn cache(&mut self, before: &Stats, after: &Stats) {
        self.hits += after.hits - before.hits;
        self.misses += after.misses - before.misses;
        self.invalidations += after.invalidated - before.invalidated;
        self.uncached += after.uncached - before.uncached;
        self.registered(after.bytes_registered_peak);
    }

    /// So many bytes were registered at a time.
    pub(crate) fn registered(&mut self, bytes: u64) {
        self.registered_bytes_peak = self.registered_bytes_peak.max(bytes);
    }

    /// One thread is done: its rate counts.
    pub(crate) fn finish(&mut self) {
        if !self.busy.is_zero() {
            self.bytes_per_s = self.bytes as f64 / self.busy.as_secs_f64();
        }
    }

    /// Another thread's figures.
    pub(crate) fn add(&mut self, other: &Self) {
        // Both have the same bounds, so every value fits.
        let _ = self.times.add(&other.times);
        self.busy += other.busy;
        self.bytes += other.bytes;
        self.preempted += other.preempted;
        self.bytes_per_s += other.bytes_per_s;
        self.stale += other.stale;
        self.errors += other.errors;
        self.churns += other.churns;
        self.hits += other.hits;
        self.misses += other.misses;
        self.invalidations += other.invalidations;
        self.uncached += other.uncached;
        self.registered_bytes_peak += other.registered_bytes_peak;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
    }
}
