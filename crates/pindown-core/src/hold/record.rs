//! [`ThreadRecord`]: the hazard slots that one thread owns, and the [`Registry`] of all of them.

use crate::sync::{AtomicBool, AtomicPtr, AtomicU64, Mutex, Ordering, light_fence, lock};

/// Holds that one thread can have at a time before it falls back to counting.
const SLOTS: usize = if cfg!(loom) { 1 } else { 16 };
/// Caches whose hits a thread counts without touching shared memory.
const COUNTERS: usize = 4;

/// Slots and counters that only their thread writes (but for puts, which zero a slot from
/// anywhere). Never freed: parked when the thread exits, and adopted by a later one.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ThreadRecord {
    slots: [AtomicU64; SLOTS],
    /// The slot to try first: the one that was put last, mostly. Null, [`BUSY`], or one of `slots`.
    hint: AtomicPtr<AtomicU64>,
    /// Which caches' hits are counted.
    counted: [AtomicU64; COUNTERS],
    /// How many; written by the owner alone, without read-modify-write.
    hits: [AtomicU64; COUNTERS],
    owned: AtomicBool,
    next: AtomicPtr<ThreadRecord>,
}

/// A slot that is never free.
#[cfg(not(loom))]
static BUSY: AtomicU64 = AtomicU64::new(1);

/// What a thread has that has no record: no slot is free, nothing is counted. So who has a record need
/// not be asked for one.
#[cfg(not(loom))]
pub(super) static NOBODYS: ThreadRecord = ThreadRecord {
    slots: [const { AtomicU64::new(1) }; SLOTS],
    hint: AtomicPtr::new((&raw const BUSY).cast_mut()),
    counted: [const { AtomicU64::new(0) }; COUNTERS],
    hits: [const { AtomicU64::new(0) }; COUNTERS],
    owned: AtomicBool::new(true),
    next: AtomicPtr::new(std::ptr::null_mut()),
};

/// Where records count the hits of one cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter {
    id: u64,
    /// Below [`COUNTERS`].
    at: usize,
}

impl Counter {
    pub(crate) fn of(id: u32) -> Self {
        Self { id: u64::from(id), at: id as usize % COUNTERS }
    }
}

impl ThreadRecord {
    pub(crate) fn new() -> Self {
        Self {
            slots: std::array::from_fn(|_| AtomicU64::new(0)),
            hint: AtomicPtr::new(std::ptr::null_mut()),
            counted: std::array::from_fn(|_| AtomicU64::new(0)),
            hits: std::array::from_fn(|_| AtomicU64::new(0)),
            owned: AtomicBool::new(true),
            next: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// A free slot. `None` when this thread holds as many regions as it has slots.
    ///
    /// Acquire: the put that zeroed the slot, and all use of the region before it, come before
    /// what the owner does next.
    #[inline(always)]
    pub(crate) fn free_slot(&self) -> Option<&AtomicU64> {
        self.hinted_slot().or_else(|| self.search_slot())
    }

    #[cold]
    fn search_slot(&self) -> Option<&AtomicU64> {
        let at = self.slots.iter().position(|s| s.load(Ordering::Acquire) == 0)?;
        self.hint.store((&raw const self.slots[at]).cast_mut(), Ordering::Relaxed);
        Some(&self.slots[at])
    }

    /// Makes the hold visible in `slot`; undoes it, and says so, if `entry` changed.
    #[inline(always)]
    pub(super) fn publish(slot: &AtomicU64, entry: &AtomicU64, seen: u64, tag: u64) -> bool {
        slot.store(tag, Ordering::Release);
        light_fence();
        if entry.load(Ordering::Acquire) == seen {
            return true;
        }
        slot.store(0, Ordering::Release);
        false
    }

    /// The slot to try first, if it is free.
    #[inline(always)]
    pub(crate) fn hinted_slot(&self) -> Option<&AtomicU64> {
        let hint = self.hint.load(Ordering::Relaxed);
        // SAFETY: one of this record's slots, or `BUSY`; null only in models and before the record is
        // its thread's (see `adopt`).
        let slot = if cfg!(loom) { unsafe { hint.as_ref() }? } else { unsafe { &*hint } };
        (slot.load(Ordering::Acquire) == 0).then_some(slot)
    }

    /// The owner's count of the hits of a cache, if it keeps one.
    #[inline(always)]
    pub(crate) fn hits_for(&self, counter: &Counter) -> Option<&AtomicU64> {
        // SAFETY: `at` is less than `COUNTERS` by the only constructor.
        let (counted, hits) =
            unsafe { (self.counted.get_unchecked(counter.at), self.hits.get_unchecked(counter.at)) };
        (counted.load(Ordering::Relaxed) == counter.id).then_some(hits)
    }

    /// One more; by the owner of the record alone.
    #[inline(always)]
    pub(crate) fn count(hits: &AtomicU64) {
        hits.store(hits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts one hit of cache `id`. False when another cache's count is in the way: flush it.
    #[inline(always)]
    pub(crate) fn count_hit(&self, counter: &Counter) -> bool {
        self.hits_for(counter).map(Self::count).is_some()
    }

    fn hits_of(&self, id: u32) -> u64 {
        self.hits_for(&Counter::of(id)).map_or(0, |hits| hits.load(Ordering::Relaxed))
    }
}

/// All thread records of the process, and hit counts that left them.
///
/// Records are a push-only list, so a fork that happens in the middle of a push leaves the child a
/// list that is whole.
#[derive(Debug)]
pub(crate) struct Registry {
    newest: AtomicPtr<ThreadRecord>,
    /// `(cache id, hits)` that made room in a record.
    spilled: Mutex<Vec<(u32, u64)>>,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self { newest: AtomicPtr::new(std::ptr::null_mut()), spilled: Mutex::new(Vec::new()) }
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &ThreadRecord> {
        let mut next = self.newest.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: null, or a record leaked by `adopt` and published with Release; never freed
            // while the registry lives.
            let record = unsafe { next.as_ref() }?;
            next = record.next.load(Ordering::Acquire);
            Some(record)
        })
    }

    /// A record for the calling thread: one that a dead thread left, or a new one. Slots that are
    /// still held (a handle that outlived its thread) stay so.
    pub(crate) fn adopt(&self) -> &ThreadRecord {
        if let Some(parked) = self.records().find(|r| !r.owned.swap(true, Ordering::AcqRel)) {
            return parked;
        }
        let record = Box::leak(Box::new(ThreadRecord::new()));
        record.search_slot();
        let record: *mut ThreadRecord = record;
        self.push(record);
        // SAFETY: just leaked.
        unsafe { &*record }
    }

    fn push(&self, record: *mut ThreadRecord) {
        let mut newest = self.newest.load(Ordering::Acquire);
        loop {
            // SAFETY: `record` was leaked by `adopt` and is not shared before it is pushed here.
            unsafe { &*record }.next.store(newest, Ordering::Release);
            match self.newest.compare_exchange(newest, record, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    pub(crate) fn park(record: &ThreadRecord) {
        record.owned.store(false, Ordering::Release);
    }

    /// Calls `found` with the [tag](super::Region::tag) of each region that a slot holds, of all
    /// caches. Before it, the caller unlinked what it asks about and passed the asymmetric fence.
    ///
    /// Acquire: what a holder did with the region before its put comes before deregistration.
    pub(crate) fn scan(&self, mut found: impl FnMut(u64)) {
        for slot in self.records().flat_map(|r| &r.slots) {
            match slot.load(Ordering::Acquire) {
                0 => {}
                tag => found(tag),
            }
        }
    }

    /// Hits that cache `id` had on all threads.
    pub(crate) fn hits(&self, id: u32) -> u64 {
        let spilled: u64 = lock(&self.spilled).iter().filter(|s| s.0 == id).map(|s| s.1).sum();
        spilled + self.records().map(|r| r.hits_of(id)).sum::<u64>()
    }

    /// Moves another cache's count out of `record` and starts counting for `id`. Does not wait for
    /// the lock: in a forked child nobody may be left to release it. A count is lost then.
    pub(crate) fn take_counter(&self, record: &ThreadRecord, id: u32) {
        let at = Counter::of(id).at;
        let (owner, n) = (&record.counted[at], &record.hits[at]);
        if let Ok(mut spilled) = self.spilled.try_lock() {
            let before = owner.load(Ordering::Relaxed) as u32;
            match spilled.iter_mut().find(|s| s.0 == before) {
                Some(s) => s.1 += n.load(Ordering::Relaxed),
                None if before != 0 => spilled.push((before, n.load(Ordering::Relaxed))),
                None => {}
            }
        }
        n.store(0, Ordering::Relaxed);
        owner.store(u64::from(id), Ordering::Relaxed);
    }

    /// Cache `id` is gone. Its counts go too, or each cache would leave some for ever.
    pub(crate) fn forget(&self, id: u32) {
        for record in self.records() {
            let owner = &record.counted[Counter::of(id).at];
            // Nobody counts for a cache that is gone; at most the owner of the record changes this.
            let _ = owner.compare_exchange(u64::from(id), 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        lock(&self.spilled).retain(|s| s.0 != id);
    }
}
