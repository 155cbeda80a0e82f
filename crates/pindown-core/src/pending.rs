//! [`Pending`]: the bounded, coalescing set of ranges that changed.
//!
//! Pushed to from inside `free()` by any thread, so a push neither allocates, nor blocks, nor
//! fails: a set that is full says "everything changed" instead. Each slot is one word that holds a
//! whole range (first page, number of pages, kind), so merging with a neighbour is one
//! compare-and-swap and taking is one swap; no slot is ever half-written.

use crate::monitor::EventKind;
use crate::range::{ADDRESS_SPACE_END, PAGE_SIZE, PageRange};
use crate::sync::{AtomicU64, Ordering};

const SLOTS: usize = if cfg!(loom) { 2 } else { 256 };
/// A push looks at no more slots than this.
const PROBES: usize = if cfg!(loom) { 2 } else { 32 };

const PAGE_BITS: u32 = 35;
const LEN_BITS: u32 = 26;
const LEN_MAX: u64 = (1 << LEN_BITS) - 1;
const _: () = assert!(ADDRESS_SPACE_END / PAGE_SIZE <= 1 << PAGE_BITS);
const _: () = assert!(PAGE_BITS + LEN_BITS + 3 == 64 && EventKind::COUNT <= 8);

/// A set of changed ranges; all methods may be called from any thread at any time.
#[derive(Debug)]
pub(crate) struct Pending {
    slots: [AtomicU64; SLOTS],
    /// Where the next push begins to look: a hint only.
    cursor: AtomicU64,
    /// Everything changed. Set on overflow and on `lost`.
    everything: AtomicU64,
}

/// What [`Pending::take`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// A changed range.
    Range(PageRange, EventKind),
    /// Everything may have changed.
    Everything,
}

fn pack(first: u64, pages: u64, kind: u64) -> u64 {
    first | pages << PAGE_BITS | kind << (PAGE_BITS + LEN_BITS)
}

fn unpack(word: u64) -> (u64, u64, u64) {
    (word & ((1 << PAGE_BITS) - 1), word >> PAGE_BITS & LEN_MAX, word >> (PAGE_BITS + LEN_BITS))
}

impl Pending {
    pub(crate) fn new() -> Self {
        Self {
            slots: std::array::from_fn(|_| AtomicU64::new(0)),
            cursor: AtomicU64::new(0),
            everything: AtomicU64::new(0),
        }
    }

    /// Adds `range`. Returns whether it overflowed into "everything".
    pub(crate) fn push(&self, range: PageRange, kind: EventKind) -> bool {
        let (first, pages) = (range.first_page(), range.pages());
        if pages > LEN_MAX || !self.store(first, pages, kind as u64) {
            self.push_everything();
            return true;
        }
        false
    }

    /// Marks everything as changed.
    pub(crate) fn push_everything(&self) {
        self.everything.store(1, Ordering::Release);
    }

    fn store(&self, first: u64, pages: u64, kind: u64) -> bool {
        let from = self.cursor.load(Ordering::Relaxed) as usize;
        for probe in 0..PROBES {
            let at = (from + probe) % SLOTS;
            if self.merge_into(at, first, pages, kind) {
                self.cursor.store(at as u64, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    /// Puts the range into slot `at` if it is free or holds a range that touches it.
    fn merge_into(&self, at: usize, first: u64, pages: u64, kind: u64) -> bool {
        // Acquire: a slot that already holds our range was put there before the taker empties
        // it, and the taker will act after this call began, hence after the change.
        let mut seen = self.slots[at].load(Ordering::Acquire);
        loop {
            let Some(wanted) = merged(seen, first, pages, kind) else { return false };
            // The swap is done even where nothing is added: it orders this push before the take.
            match self.slots[at].compare_exchange(seen, wanted, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Empties the set into `found`. Ranges pushed meanwhile may or may not be included; one
    /// whose push returned before this call is.
    pub(crate) fn take(&self, mut found: impl FnMut(Taken)) {
        if self.everything.load(Ordering::Relaxed) != 0 && self.everything.swap(0, Ordering::AcqRel) != 0 {
            found(Taken::Everything);
        }
        for slot in &self.slots {
            if slot.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let (first, pages, kind) = unpack(slot.swap(0, Ordering::AcqRel));
            if let Some(range) = PageRange::from_pages(first, pages) {
                found(Taken::Range(range, EventKind::ALL[kind as usize]));
            }
        }
    }
}

/// The word for "`seen` and this range too", if one word can hold both.
fn merged(seen: u64, first: u64, pages: u64, kind: u64) -> Option<u64> {
    if seen == 0 {
        return Some(pack(first, pages, kind));
    }
    let (f, p, k) = unpack(seen);
    if first > f + p || f > first + pages {
        return None;
    }
    let start = f.min(first);
    let len = (f + p).max(first + pages) - start;
    (len <= LEN_MAX).then(|| pack(start, len, k))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn range(first: u64, pages: u64) -> PageRange {
        PageRange::from_pages(first, pages).unwrap()
    }

    fn drain(p: &Pending) -> Vec<Taken> {
        let mut v = vec![];
        p.take(|t| v.push(t));
        v
    }

    #[test]
    fn neighbours_coalesce() {
        let p = Pending::new();
        for i in 0..10_000 {
            assert!(!p.push(range(i * 4, 4), EventKind::Unmap));
        }
        assert_eq!(drain(&p), [Taken::Range(range(0, 40_000), EventKind::Unmap)]);
        assert_eq!(drain(&p), []);
    }

    #[test]
    fn overflow_means_everything() {
        let p = Pending::new();
        let overflowed = (0..10_000).filter(|i| p.push(range(i * 8, 1), EventKind::Remove)).count();
        assert!(overflowed > 0);
        assert_eq!(drain(&p)[0], Taken::Everything);
        assert!(!p.push(range(5, 1), EventKind::Remove), "room again once drained");
    }

    #[test]
    fn a_range_too_long_for_a_slot_means_everything() {
        let p = Pending::new();
        assert!(p.push(PageRange::everything(), EventKind::Manual));
        assert_eq!(drain(&p), [Taken::Everything]);
    }

    #[test]
    fn the_highest_page_survives_packing() {
        let p = Pending::new();
        let top = PageRange::covering(ADDRESS_SPACE_END - 1, 1).unwrap();
        p.push(top, EventKind::Sweep);
        assert_eq!(drain(&p), [Taken::Range(top, EventKind::Sweep)]);
    }
}
