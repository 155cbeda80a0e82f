//! The words that a lookup compares: what the monitor says, and what the cache has drained.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::host::{Host, Reservation};
use crate::monitor::Monitor;
use crate::sync::{AtomicU64, Ordering};

/// A monitor's own generation word, read without a virtual call.
#[derive(Debug)]
pub(crate) struct Generation {
    word: NonNull<std::sync::atomic::AtomicU64>,
    /// Keeps the word alive.
    monitor: Arc<dyn Monitor>,
}

// SAFETY: the word is an atomic owned by the monitor, which is `Send + Sync` and kept alive here.
unsafe impl Send for Generation {}
// SAFETY: as above.
unsafe impl Sync for Generation {}

impl Generation {
    pub(crate) fn new(monitor: Arc<dyn Monitor>) -> Self {
        static NEVER_MOVES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        Self { word: NonNull::from(monitor.generation().unwrap_or(&NEVER_MOVES)), monitor }
    }

    /// Its present value; constant for a monitor without a word of its own.
    #[inline(always)]
    pub(crate) fn load(&self) -> u64 {
        // SAFETY: a static, or borrowed by `generation` from the monitor, so that it lives as long as
        // the monitor, which this struct keeps.
        unsafe { self.word.as_ref() }.load(std::sync::atomic::Ordering::Acquire)
    }

    pub(crate) fn monitor(&self) -> &Arc<dyn Monitor> {
        &self.monitor
    }
}

/// Up to which generations the table is right. Lives in memory that a forked child finds zeroed,
/// and zero equals no generation, so that the child's lookups find nothing.
#[derive(Debug)]
pub(crate) struct Drained {
    words: NonNull<Words>,
    reservation: Option<Reservation>,
    host: Arc<dyn Host>,
}

#[derive(Debug, Default)]
struct Words {
    /// Of the two below.
    sum: AtomicU64,
    own: AtomicU64,
    external: AtomicU64,
}

// SAFETY: the words are atomics in memory that this struct owns until it is dropped.
unsafe impl Send for Drained {}
// SAFETY: as above.
unsafe impl Sync for Drained {}

impl Drained {
    pub(crate) fn new(host: Arc<dyn Host>) -> Self {
        match Self::reserve(&*host) {
            Some(reservation) => {
                let words = std::ptr::with_exposed_provenance_mut(reservation.base);
                Self { words: NonNull::new(words).expect("reserved"), reservation: Some(reservation), host }
            }
            None => Self { words: NonNull::from(Box::leak(Box::default())), reservation: None, host },
        }
    }

    /// loom's atomics are no plain words and live on the heap.
    fn reserve(host: &dyn Host) -> Option<Reservation> {
        if cfg!(loom) { None } else { host.reserve(crate::PAGE_SIZE) }
    }

    #[inline(always)]
    fn words(&self) -> &Words {
        // SAFETY: points to a leaked box, or to a zeroed reservation that is large and aligned
        // enough; all-zero bytes are valid `Words`. Both live until `drop`.
        unsafe { self.words.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn own(&self) -> u64 {
        self.words().own.load(Ordering::Acquire)
    }

    /// Whether the present values, which add up to `present`, are both those.
    ///
    /// The sum is loaded first: so neither present value is older than what was drained, and since
    /// neither word moves back, the sums are equal only if both words are.
    #[inline(always)]
    pub(crate) fn is(&self, present: impl FnOnce() -> u64) -> bool {
        self.words().sum.load(Ordering::Acquire) == present()
    }

    #[inline(always)]
    pub(crate) fn external(&self) -> u64 {
        self.words().external.load(Ordering::Acquire)
    }

    /// Release: lookups that see these values see the table as it was made right for them.
    pub(crate) fn set(&self, own: u64, external: u64) {
        let words = self.words();
        words.own.store(own, Ordering::Release);
        words.external.store(external, Ordering::Release);
        words.sum.store(own.wrapping_add(external), Ordering::Release);
    }

    /// Whether this is a forked child. Only after the first [`set`](Self::set).
    pub(crate) fn is_forked(&self) -> bool {
        self.own() == 0
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        match self.reservation.take() {
            // SAFETY: it came from this host's `reserve`, and this is its only owner.
            Some(reservation) => unsafe { self.host.release(reservation) },
            // SAFETY: without a reservation the words are the box leaked in `new`.
            None => drop(unsafe { Box::from_raw(self.words.as_ptr()) }),
        }
    }
}
