//! [`Held`]: one hold on one region.

use std::ptr::NonNull;
use std::sync::Arc;

use super::record::ThreadRecord;
use super::slab::{Region, Retire, State};
use crate::sync::{AtomicU64, FenceAt, Ordering, full_fence};
use crate::{Access, PageRange, Provider, UseClock};

/// A hold: while it lives, the region is not deregistered, and its record is not reused.
///
/// It points into the slab without keeping it alive by a count: a cache that is dropped while
/// holds exist leaves its slab (see `Inner::drop`). Two words, so that a lookup returns it in
/// registers.
#[derive(Debug)]
pub(crate) struct Held<P: Provider> {
    region: NonNull<Region<P>>,
    /// The hazard slot, or [`COUNTED`], or [`SINGLE`], or the sign bit and the id under which a
    /// counted hold is recorded.
    slot: *const AtomicU64,
}

/// Not a slot: the hold is counted in the region.
const COUNTED: *const AtomicU64 = std::ptr::null();
/// Not a slot: the hold is counted in the region, which is used once.
const SINGLE: *const AtomicU64 = std::ptr::without_provenance(1);
/// Not a slot: user addresses are positive.
const RECORDED: usize = 1 << (usize::BITS - 1);

// SAFETY: the pointers lead to `Sync` data (records, atomics) that outlives the hold; a put is an
// atomic store or decrement and may come from any thread.
unsafe impl<P: Provider> Send for Held<P> {}
// SAFETY: shared use only reads through the pointers, and counts for clones.
unsafe impl<P: Provider> Sync for Held<P> {}

impl<P: Provider> Held<P> {
    /// Tries to hold `region`, which `entry`, seen to hold `seen`, names.
    #[inline(always)]
    pub(crate) fn try_new(
        record: Option<&'static ThreadRecord>,
        region: &Region<P>,
        entry: &AtomicU64,
        seen: u64,
    ) -> Option<Self> {
        match record.and_then(ThreadRecord::free_slot) {
            Some(slot) => Self::try_slot(region, slot, entry, seen),
            None => Self::count_checked(region, entry, seen),
        }
    }

    /// The same by `slot`, which is free.
    #[inline(always)]
    pub(crate) fn try_slot(
        region: &Region<P>,
        slot: &AtomicU64,
        entry: &AtomicU64,
        seen: u64,
    ) -> Option<Self> {
        let (region, tag) = (NonNull::from(region), region.tag());
        let slot: *const AtomicU64 = slot;
        // SAFETY: a slot of a thread record, at a user address: what `drop` asks, so that where both are
        // inlined it need not.
        unsafe { std::hint::assert_unchecked(slot.addr() as isize > SINGLE.addr() as isize) };
        // SAFETY: made of a reference just above.
        let published = ThreadRecord::publish(unsafe { &*slot }, entry, seen, tag);
        published.then(|| Self { region, slot })
    }

    /// A counted hold, valid if `entry` still holds `seen` once the count is visible.
    #[cold]
    pub(crate) fn count_checked(region: &Region<P>, entry: &AtomicU64, seen: u64) -> Option<Self> {
        let held = Self::count(region);
        full_fence(FenceAt::Count);
        (entry.load(Ordering::Acquire) == seen).then_some(held)
    }

    /// A counted hold on a region that cannot go away meanwhile: the caller holds it, or has the
    /// cache's lock and sees it linked.
    pub(crate) fn count(region: &Region<P>) -> Self {
        region.holds().fetch_add(1, Ordering::SeqCst);
        Self { region: NonNull::from(region), slot: COUNTED }
    }

    /// The first hold on a single-use region. Under the cache's lock.
    pub(crate) fn single(region: &Region<P>, owner: Arc<dyn Retire>, index: u32) -> Self {
        region.hold_single(owner, index);
        Self { region: NonNull::from(region), slot: SINGLE }
    }

    /// The same hold, whose put is recorded under `id`. Single-use holds cannot say: theirs is
    /// recorded at once.
    pub(crate) fn recorded(self, id: u64) -> Self {
        if self.is_single() {
            put_recorded(id);
            return self;
        }
        let slot = std::ptr::without_provenance(RECORDED | id as usize);
        let mut held = Self::count(self.region());
        held.slot = slot;
        held
    }

    /// Whether the region is used once, and not found by others.
    pub(crate) fn is_single(&self) -> bool {
        self.slot == SINGLE
    }

    #[inline(always)]
    pub(crate) fn region(&self) -> &Region<P> {
        // SAFETY: records are never freed while the cache lives, and a cache that goes away
        // while a hold exists leaves its slab in memory.
        unsafe { self.region.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn touch(&self, clock: &UseClock) {
        self.region().touch(clock);
    }

    #[inline(always)]
    pub(crate) fn key(&self) -> P::Key {
        // SAFETY: this is a hold.
        unsafe { self.region().key() }
    }

    pub(crate) fn range(&self) -> PageRange {
        self.region().range()
    }

    pub(crate) fn access(&self) -> Access {
        self.region().access()
    }

    pub(crate) fn state(&self) -> State {
        self.region().state()
    }
}

impl<P: Provider> Clone for Held<P> {
    fn clone(&self) -> Self {
        if self.is_single() {
            self.region().hold_single_again();
            return Self { region: self.region, slot: SINGLE };
        }
        Self::count(self.region())
    }
}

impl<P: Provider> Drop for Held<P> {
    /// Release: what was done with the region comes before whoever finds it unheld.
    #[inline(always)]
    fn drop(&mut self) {
        if self.slot.addr() as isize > SINGLE.addr() as isize {
            // SAFETY: neither a constant nor recorded (negative), so a slot of a thread record;
            // those are never freed, and at user addresses, which are positive.
            unsafe { &*self.slot }.store(0, Ordering::Release);
        } else {
            put_counted(self.region, self.slot.addr());
        }
    }
}

/// By value, so that who this is inlined into keeps the hold in registers; and no reference, since the
/// region may be gone before this returns.
#[cold]
#[inline(never)]
fn put_counted<P: Provider>(region: NonNull<Region<P>>, slot: usize) {
    // SAFETY: as in `Held::region`, until the hold is put.
    let region = unsafe { region.as_ref() };
    if slot == SINGLE.addr() {
        // Telling the owner may free the slab: nothing here points into it by then.
        if let Some((owner, index)) = region.put_single() {
            owner.retire(index);
        }
    } else {
        if slot & RECORDED != 0 {
            put_recorded((slot & !RECORDED) as u64);
        }
        region.holds().fetch_sub(1, Ordering::Release);
    }
}

fn put_recorded(id: u64) {
    if let Some(recorder) = crate::trace::recorder() {
        recorder.put(id);
    }
}
