//! [`Session`]: the answers to libfabric's questions.
//!
//! libfabric calls with its `mm_lock` held; `notify` takes that lock, so only the thread calls it, holding no
//! lock. Lock order: `mm_lock`, then the ledger's, then `stale`.
//!
//! libfabric registers before it subscribes. What changes in between is not seen; the program would have to
//! change the very buffer that it has just passed to a transfer, which no engine promises anything about.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pindown::PageRange;
use pindown_preload::ledger::{Found, Keeping, Ledger};

use crate::stale::Stale;

/// Changes that come together are notified together.
const GATHER: Duration = Duration::from_micros(200);

#[derive(Debug)]
pub(crate) struct Session {
    ledger: Ledger,
    stale: Mutex<Stale>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    valid: AtomicU64,
    invalid: AtomicU64,
    watched: AtomicU64,
    refused: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Session {
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self { ledger, stale: Mutex::default(), counts: Counts::default() }
    }

    /// Whether libfabric may keep what it has just registered there.
    pub(crate) fn subscribe(&self, addr: usize, len_bytes: usize) -> bool {
        let Ok(range) = PageRange::covering(addr, len_bytes) else { return false };
        let watched = self.ledger.watch(range, Keeping::Checked, &mut |r| self.stale().add(r));
        count(if watched.is_ok() { &self.counts.watched } else { &self.counts.refused });
        watched.is_ok()
    }

    pub(crate) fn unsubscribe(&self, addr: usize, len_bytes: usize) {
        if let Ok(range) = PageRange::covering(addr, len_bytes) {
            self.ledger.unwatch(range);
        }
    }

    /// Whether what is registered there is what the program sees there.
    pub(crate) fn is_valid(&self, addr: usize, len_bytes: usize) -> bool {
        let Ok(range) = PageRange::covering(addr, len_bytes) else { return false };
        let found = self.ledger.look(range, &mut |r| self.stale().add(r));
        let valid = found == Found::Watched && !self.stale().overlaps(range);
        count(if valid { &self.counts.valid } else { &self.counts.invalid });
        valid
    }

    /// One turn of the thread: waits for changes, and calls `notify` for each that libfabric may hold
    /// registrations of, so that they go without waiting for their next use.
    pub(crate) fn turn(&self, notify: impl Fn(PageRange)) {
        self.ledger.wait();
        std::thread::sleep(GATHER);
        self.ledger.refresh(&mut |r| self.stale().add(r));
        if self.ledger.is_overfull() {
            self.ledger.forget(&mut |r| self.stale().add(r));
        }
        let (mark, pending) = self.stale().pending();
        pending.into_iter().for_each(notify);
        self.stale().notified(mark);
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.ledger.is_forked()
    }

    fn stale(&self) -> MutexGuard<'_, Stale> {
        self.stale.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counts { valid, invalid, watched, refused } = &self.counts;
        write!(
            f,
            "hits {}, refused hits {}; ranges watched {}, not cacheable {}; monitor: {}",
            of(valid),
            of(invalid),
            of(watched),
            of(refused),
            self.ledger.monitor().name()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pindown::monitor::Manual;
    use pindown::{Monitor, Notifier};

    use super::*;

    /// Two domains have a cache each, and libfabric asks about both with the same words. One has
    /// registered anew after a change; the other's old registration must not pass for it.
    #[test]
    fn what_one_cache_registered_anew_does_not_make_the_others_old_one_valid() {
        let (monitor, notifier) = (Arc::new(Manual::new()), Notifier::detached());
        monitor.start(notifier.clone()).unwrap();
        let session = Session::new(Ledger::with(monitor.clone(), notifier));
        let (addr, len) = (0x10_0000, 0x4000);
        assert!(session.subscribe(addr, len) && session.subscribe(addr, len));
        assert!(session.is_valid(addr + 5, 10) && session.is_valid(addr, len));
        monitor.report(PageRange::covering(addr, 1).unwrap());
        assert!(!session.is_valid(addr, len), "the first cache asks");
        assert!(session.subscribe(addr, len), "and registers anew");
        assert!(!session.is_valid(addr + 0x3000, 1), "the second asks");
        let notified = Mutex::new(Vec::new());
        session.turn(|r| notified.lock().unwrap().push(r));
        assert_eq!(*notified.lock().unwrap(), [PageRange::covering(addr, len).unwrap()]);
        assert!(session.is_valid(addr, len), "both have dropped it, and what came later is new");
    }
}
