//! [`Notifier`]: through which a monitor, an allocator or an engine reports changes.

use crate::monitor::EventKind;
use crate::pending::{Pending, Taken};
use crate::range::PageRange;
use crate::stats::EventCounts;
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::wake::Wake;

/// Reports changes of address space to one cache. Cheap to clone.
///
/// Every method may be called inside `free()`, by any thread, at any time: none allocates, takes a
/// lock, blocks or panics. A report takes effect before the call returns: a lookup that starts
/// afterwards does not return a registration made before the report.
#[derive(Clone, Debug)]
pub struct Notifier(Arc<Inbox>);

/// The shared state behind notifiers and their cache.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Moves by 2 for each report; odd while a monitor reads reports from its kernel.
    generation: AtomicU64,
    pending: Pending,
    pub(crate) counts: EventCounts,
    pub(crate) wake: Wake,
}

impl Inbox {
    /// The first value of the generation word. Not zero: that is what a forked child finds in
    /// memory that is wiped on fork.
    pub(crate) const FIRST_GENERATION: u64 = 2;

    #[inline(always)]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self, found: impl FnMut(Taken)) {
        self.pending.take(found);
    }
}

impl Notifier {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inbox {
            generation: AtomicU64::new(Inbox::FIRST_GENERATION),
            pending: Pending::new(),
            counts: EventCounts::default(),
            wake: Wake::new(),
        }))
    }

    #[inline(always)]
    pub(crate) fn inbox(&self) -> &Inbox {
        &self.0
    }

    /// A notifier that no cache listens to, for tests of monitors.
    pub fn detached() -> Self {
        Self::new()
    }

    /// `range` changed: what was registered there before this call is stale.
    pub fn invalidate(&self, range: PageRange, kind: EventKind) {
        self.push(range, kind);
        self.0.generation.fetch_add(2, Ordering::AcqRel);
        self.0.wake.wake();
    }

    /// Reports were lost: everything is stale.
    pub fn lost(&self) {
        self.0.counts.lost();
        self.0.pending.push_everything();
        self.0.generation.fetch_add(2, Ordering::AcqRel);
        self.0.wake.wake();
    }

    /// Like [`invalidate`](Self::invalidate) without moving the word: for use between
    /// [`begin`](Self::begin) and [`end`](Self::end), and inside
    /// [`Monitor::drain`](crate::Monitor::drain).
    pub fn push(&self, range: PageRange, kind: EventKind) {
        self.0.counts.event(kind);
        if let Some(recorder) = crate::trace::recorder() {
            recorder.invalidate(range.start() as u64, range.len_bytes() as u64);
        }
        if self.0.pending.push(range, kind) {
            self.0.counts.overflow();
        }
    }

    /// Like [`lost`](Self::lost) without moving the word.
    pub fn push_lost(&self) {
        self.0.counts.lost();
        self.0.pending.push_everything();
    }

    /// Makes the word odd: the one reader of a kernel queue calls this **before** it reads, since
    /// reading is what lets the changing call return. Lookups then wait for [`end`](Self::end), so
    /// nothing between the two may block or allocate.
    pub fn begin(&self) {
        self.0.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes the word even again, moved on: all that was read has been pushed.
    pub fn end(&self) {
        self.0.generation.fetch_add(1, Ordering::AcqRel);
        self.0.wake.wake();
    }

    /// The present value of the generation word, for monitors' tests.
    pub fn generation(&self) -> u64 {
        self.0.generation()
    }

    /// The generation word itself; load it with acquire ordering.
    #[cfg(not(loom))]
    pub fn generation_word(&self) -> &AtomicU64 {
        &self.0.generation
    }

    /// Sleeps until something was reported or `timeout` is over; whether something was. For the one
    /// thread that waits on a [`detached`](Self::detached) notifier.
    pub fn sleep_detached(&self, timeout: std::time::Duration) -> bool {
        self.0.wake.sleep(timeout);
        self.0.wake.take()
    }

    /// Takes what was pushed: `None` stands for "everything". For tests of monitors with a
    /// [`detached`](Self::detached) notifier; a cache's own notifier is drained by the cache.
    pub fn take_detached(&self) -> Vec<Option<(PageRange, EventKind)>> {
        let mut all = Vec::new();
        self.0.take(|t| {
            all.push(match t {
                Taken::Range(range, kind) => Some((range, kind)),
                Taken::Everything => None,
            })
        });
        all
    }
}
