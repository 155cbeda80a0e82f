//! What the summary says.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pindown::Stats;

use crate::asked::Passed;

/// Calls, and the time in them where a summary was asked for.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    count: AtomicU64,
    spent_ns: AtomicU64,
}

impl Calls {
    /// Runs one.
    pub(crate) fn time<T>(&self, timed: bool, call: impl FnOnce() -> T) -> T {
        self.count.fetch_add(1, Ordering::Relaxed);
        if !timed {
            return call();
        }
        let begin = Instant::now();
        let result = call();
        self.spent_ns.fetch_add(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }

    /// Runs one that counts only if it succeeds.
    pub(crate) fn time_if<T, E>(&self, timed: bool, call: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let begin = timed.then(Instant::now);
        let result = call()?;
        self.count.fetch_add(1, Ordering::Relaxed);
        let spent_ns = begin.map_or(0, |b| b.elapsed().as_nanos() as u64);
        self.spent_ns.fetch_add(spent_ns, Ordering::Relaxed);
        Ok(result)
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spent = Duration::from_nanos(self.spent_ns.load(Ordering::Relaxed));
        write!(f, "{} in {spent:.1?}", self.count())
    }
}

/// Of one process.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Registrations from the cache.
    pub(crate) served: Calls,
    /// Their ends.
    pub(crate) put: Calls,
    /// Registrations by libibverbs.
    pub(crate) passed: Calls,
    /// Their ends.
    pub(crate) deregistered: Calls,
    why: [AtomicU64; Passed::ALL.len()],
    /// What the caches of closed domains had registered.
    registered: AtomicU64,
    invalidated: AtomicU64,
}

impl Figures {
    pub(crate) fn pass(&self, why: Passed) {
        self.why[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A cache that ends, or is asked at the end.
    pub(crate) fn add(&self, stats: &Stats) {
        self.registered.fetch_add(stats.registrations, Ordering::Relaxed);
        self.invalidated.fetch_add(stats.invalidated, Ordering::Relaxed);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.served.count() + self.passed.count() == 0
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (registered, invalidated) = (&self.registered, &self.invalidated);
        write!(
            f,
            "from the cache {}, put {} ({} registered, {} went stale); passed on {}, deregistered {}",
            self.served,
            self.put,
            registered.load(Ordering::Relaxed),
            invalidated.load(Ordering::Relaxed),
            self.passed,
            self.deregistered,
        )?;
        for why in Passed::ALL {
            match self.why[why as usize].load(Ordering::Relaxed) {
                0 => {}
                count => write!(f, "; {count} for {}", why.name())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_happened() {
        let figures = Figures::default();
        assert!(figures.is_empty());
        for _ in 0..3 {
            figures.served.time(true, || ());
        }
        figures.passed.time(false, || ());
        figures.pass(Passed::Remote);
        let mut stats = Stats::default();
        (stats.registrations, stats.invalidated) = (2, 1);
        figures.add(&stats);
        let line = figures.to_string();
        assert!(line.starts_with("from the cache 3 in "), "{line}");
        assert!(
            line.contains("(2 registered, 1 went stale)") && line.ends_with("; 1 for remote access"),
            "{line}"
        );
        assert!(!figures.is_empty());
    }
}
