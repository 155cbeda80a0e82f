//! [`GraceSet`]: ranges whose pages may still be about to vanish.
//!
//! The kernel reports MADV_DONTNEED and its kin *before* it discards the pages: the caller waits
//! until the event is read, and discards afterwards. Who registers between the two pins pages that
//! are about to be replaced, and a cache that kept this registration would serve old bytes for
//! ever. So a range that a REMOVE event touched is not cached until a *grace period* has passed.
//!
//! # Why this is sound
//!
//! Let X be the thread whose discard raised event e. X was blocked in that call when the reader
//! took e from the queue, and it discards before it leaves the call. So:
//!
//! 1. Once X has been observed outside that call, later than e was read, the discard is over.
//! 2. X is a thread of this process, since the kernel lets nobody else discard
//!    (`process_madvise(2)`: MADV_DONTNEED on itself only). Processes that share the address space
//!    by a raw `clone(CLONE_VM)`, and a vfork child that discards its parent's memory before it
//!    execs, are the documented exception.
//! 3. X existed when e was read. [`GraceSet::add`] numbers e after it was read; a [`Snapshot`]
//!    loads the last number first and lists the threads afterwards, completely (see
//!    [`threads::list`](crate::sys::threads::list)). So for every event it answers for, X is on the
//!    list or had exited.
//! 4. Each thread on the list is dropped from it only on evidence, gathered later, that it was
//!    outside every discarding call at some moment after the snapshot: it exited; its user-mode
//!    clock moved; or it sleeps in another call, or in a fault taken in user mode
//!    ([`evidence`](super::evidence)). When the list is empty, every event up to the snapshot's
//!    number is over, and [`GraceSet::clear`] says so.
//!
//! Threads created after the snapshot cannot be X. A thread id that is given to a new thread shows
//! as a changed clock (the old thread exited: true) or as an unchanged one (it only takes longer).
//! Events that arrive between the snapshot and the end of its list have higher numbers and wait
//! for the next snapshot.
//!
//! # And with the cache's protocol
//!
//! An event's range is added here before the generation is even again. A registration that began
//! before that and reads this set too early sees its range among the events that the cache drains
//! before it publishes, and is thrown away; one that begins later sees the range here.

use std::sync::atomic::{AtomicU64, Ordering};

use pindown_core::PageRange;

const ENTRIES: usize = 64;
/// An entry's number while its range is being changed: later than every event.
const CHANGING: u64 = u64::MAX;

/// Ranges in grace. One thread adds (the reader of the event queue), any may look; neither side
/// blocks or allocates. Bounded: when it is full, everything is in grace.
#[derive(Debug)]
pub(super) struct GraceSet {
    entries: [Entry; ENTRIES],
    /// Number of the last event added.
    last: AtomicU64,
    /// Events up to this number are over.
    cleared: AtomicU64,
    /// Number of the last event that found no room.
    everything: AtomicU64,
}

#[derive(Debug, Default)]
struct Entry {
    start: AtomicU64,
    end: AtomicU64,
    number: AtomicU64,
}

impl GraceSet {
    pub(super) fn new() -> Self {
        Self {
            entries: std::array::from_fn(|_| Entry::default()),
            last: AtomicU64::new(0),
            cleared: AtomicU64::new(0),
            everything: AtomicU64::new(0),
        }
    }

    /// Adds the range of an event that has been read. For one thread only.
    pub(super) fn add(&self, range: PageRange) {
        let number = self.last.load(Ordering::Relaxed) + 1;
        let cleared = self.cleared.load(Ordering::Acquire);
        let (start, end) = (range.start() as u64, range.end() as u64);
        let over = |e: &&Entry| e.number.load(Ordering::Relaxed) <= cleared;
        let touching = |e: &&Entry| {
            !over(e) && e.start.load(Ordering::Relaxed) <= end && start <= e.end.load(Ordering::Relaxed)
        };
        if let Some(entry) = self.entries.iter().find(touching) {
            entry.extend(start, end, number);
        } else if let Some(entry) = self.entries.iter().find(over) {
            entry.set(start, end, number);
        } else {
            self.everything.store(number, Ordering::Release);
        }
        // Last: a snapshot that sees this number finds the entry too, and X was blocked before.
        self.last.store(number, Ordering::Release);
    }

    /// Number of the last event added; a snapshot of threads taken after this call answers for all
    /// events up to it.
    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Whether events are waiting for their grace period to end.
    pub(super) fn is_pending(&self) -> bool {
        self.last() > self.cleared.load(Ordering::Acquire)
    }

    /// All events up to `number` are over.
    pub(super) fn clear(&self, number: u64) {
        self.cleared.fetch_max(number, Ordering::AcqRel);
    }

    /// Whether `range` overlaps a range in grace.
    pub(super) fn contains(&self, range: PageRange) -> bool {
        // Loaded first: what is over by then stays over.
        let cleared = self.cleared.load(Ordering::Acquire);
        self.everything.load(Ordering::Acquire) > cleared
            || self.entries.iter().any(|e| e.overlaps(range, cleared))
    }
}

impl Entry {
    fn set(&self, start: u64, end: u64, number: u64) {
        self.number.store(CHANGING, Ordering::Relaxed);
        std::sync::atomic::fence(Ordering::Release); // CHANGING before the bounds
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.number.store(number, Ordering::Release);
    }

    /// Grows a range that is in grace; it only ever covers more, so no reader can miss it.
    fn extend(&self, start: u64, end: u64, number: u64) {
        self.start.fetch_min(start, Ordering::AcqRel);
        self.end.fetch_max(end, Ordering::AcqRel);
        self.number.store(number, Ordering::Release);
    }

    fn overlaps(&self, range: PageRange, cleared: u64) -> bool {
        let number = self.number.load(Ordering::Acquire);
        if number <= cleared {
            return false;
        }
        let (start, end) = (self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        std::sync::atomic::fence(Ordering::Acquire);
        // Changed while it was read, or being changed: take it for an overlap.
        number == CHANGING
            || self.number.load(Ordering::Relaxed) != number
            || (start < range.end() as u64 && (range.start() as u64) < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, pages: u64) -> PageRange {
        PageRange::from_pages(first, pages).unwrap()
    }

    #[test]
    fn in_grace_until_cleared() {
        let set = GraceSet::new();
        assert!(!set.is_pending() && !set.contains(PageRange::everything()));
        set.add(range(100, 10));
        let first = set.last();
        set.add(range(300, 10));
        assert!(set.contains(range(109, 1)) && set.contains(range(95, 6)) && !set.contains(range(110, 190)));
        set.clear(first);
        assert!(!set.contains(range(100, 10)) && set.contains(range(305, 1)) && set.is_pending());
        set.clear(set.last());
        assert!(!set.contains(PageRange::everything()) && !set.is_pending());
    }

    #[test]
    fn a_later_event_on_the_range_keeps_it_in_grace() {
        let set = GraceSet::new();
        set.add(range(100, 10));
        let snapshot = set.last();
        set.add(range(105, 10)); // merged into the same entry
        set.clear(snapshot);
        assert!(set.contains(range(114, 1)), "its own event is not over");
        set.clear(set.last());
        assert!(!set.contains(range(100, 20)));
    }

    #[test]
    fn full_means_everything() {
        let set = GraceSet::new();
        for i in 0..=ENTRIES as u64 {
            set.add(range(i * 100, 1));
        }
        assert!(set.contains(range(1_000_000, 1)));
        set.clear(set.last());
        assert!(!set.contains(PageRange::everything()));
        set.add(range(7, 1));
        assert!(set.contains(range(7, 1)) && !set.contains(range(8, 1)), "room again");
    }

    #[test]
    fn a_reused_entry_is_never_seen_half_written() {
        let set = GraceSet::new();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..200_000u64 {
                    set.add(range((1 << 20) + (i % 1000) * 10, 5));
                    set.clear(set.last());
                }
                stop.store(true, Ordering::Release);
            });
            // One range is added over and over and never cleared by anyone but at its own number;
            // what is never added must look clear whenever nothing is being changed.
            let mut clear_seen = 0u64;
            while !stop.load(Ordering::Acquire) {
                clear_seen += u64::from(!set.contains(range(5, 5)));
            }
            assert!(clear_seen > 0);
        });
    }
}
