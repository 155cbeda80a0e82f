//! [`Host`]: what core may not do itself is injected here.

use std::fmt::Debug;

use crate::PageRange;

/// One mapping of the address space, as `/proc/self/maps` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its whole extent.
    pub range: PageRange,
    /// It can be read.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
}

/// Zeroed memory that is backed by pages only where it was touched, and that a forked child
/// finds zeroed again where [`Host::reserve`] promised so.
///
/// Owned by whoever reserved it; freed by [`Host::release`] only.
#[derive(Debug)]
pub struct Reservation {
    /// Start address; aligned to a page.
    pub base: usize,
    /// Length in bytes.
    pub len_bytes: usize,
    /// A forked child sees zeroes (MADV_WIPEONFORK, Linux 4.14).
    pub wiped_on_fork: bool,
}

/// System services that the cache needs. Implemented with real calls in `pindown`, with fakes in
/// loom, proptest and fuzzing.
pub trait Host: Send + Sync + Debug + 'static {
    /// Reserves address space (`mmap` with `MAP_NORESERVE`). `None`: the caller falls back to the heap.
    fn reserve(&self, bytes: usize) -> Option<Reservation>;
    /// The same, which a forked child finds as it was, for what fills from the start: large ones are in
    /// huge pages, where there are some. The default refuses.
    fn reserve_kept(&self, bytes: usize) -> Option<Reservation> {
        let _ = bytes;
        None
    }
    /// Gives a reservation back.
    ///
    /// # Safety
    ///
    /// It came from `reserve` or `reserve_kept` of this host and nothing refers to it any more.
    unsafe fn release(&self, reservation: Reservation);
    /// Whether [`asymmetric_fence`](Self::asymmetric_fence) works
    /// (`membarrier(2)` PRIVATE_EXPEDITED, Linux 4.14). If not, holds are counted.
    fn has_asymmetric_fence(&self) -> bool;
    /// Makes every running thread of the process pass a full fence.
    fn asymmetric_fence(&self);
    /// The one mapping that contains all of `range`, if one does. Used to keep widening inside it.
    fn mapping(&self, range: PageRange) -> Option<Mapping>;
    /// Monotonic time in nanoseconds.
    fn now_ns(&self) -> u64;
}

/// A host without system services: reserves nothing, has no asymmetric fence (so holds are
/// counted), sees one mapping of everything, and counts its own time. For models, fuzzing and tests.
#[derive(Debug, Default)]
pub struct PlainHost {
    now_ns: std::sync::atomic::AtomicU64,
}

impl Host for PlainHost {
    fn reserve(&self, _bytes: usize) -> Option<Reservation> {
        None
    }
    unsafe fn release(&self, _reservation: Reservation) {}
    fn has_asymmetric_fence(&self) -> bool {
        false
    }
    fn asymmetric_fence(&self) {}
    fn mapping(&self, _range: PageRange) -> Option<Mapping> {
        Some(Mapping { range: PageRange::everything(), readable: true, writable: true })
    }
    /// A microsecond a call.
    fn now_ns(&self) -> u64 {
        self.now_ns.fetch_add(1000, std::sync::atomic::Ordering::Relaxed)
    }
}
