//! [`Slab`]: the records of regions. Addresses are stable, and memory is never freed while the
//! cache lives, so that a late reader of a recycled index reads a record, not garbage.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::host::{Host, Reservation};
use crate::interval_map::{INDEX_BITS, MAX_REGIONS};
use crate::monitor::Stamp;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, UnsafeCell};
use crate::{Access, PageRange, Provider, UseClock, UseWord};

/// Records of one allocation: 2^this.
const SEGMENT_SHIFT: u32 = if cfg!(loom) { 1 } else { 8 };
const SEGMENT: usize = 1 << SEGMENT_SHIFT;
/// As many as there are indices in an entry, so that none is out of bounds.
const SEGMENTS: usize = if cfg!(loom) { 2 } else { 1 << (INDEX_BITS - SEGMENT_SHIFT) };

const STATE_MASK: u64 = (1 << 7) - 1;
const SUBSCRIBED: u64 = 1 << 7;
const AT_ONCE: u64 = 1 << 13;
const CHECKED: u64 = 1 << 14;
const ZONED: u64 = 1 << 15;
const _: () = assert!(Access::all().bits() < 1 << 5);

/// Why nobody finds a region any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In no use.
    Free,
    /// Lookups find it.
    Live,
    /// Used once, never found.
    Single,
    /// Its range changed.
    Stale,
    /// Dropped for room, superseded or flushed; its pages are still right.
    Evicted,
}

const STATES: [State; 5] = [State::Free, State::Live, State::Single, State::Stale, State::Evicted];

/// Who is told that a single-use region was put for the last time.
pub(crate) trait Retire: Send + Sync {
    /// Nobody holds the single-use region `index` any more.
    fn retire(&self, index: u32);
}

/// Of a single-use region: who deregisters it, and how many hold it.
struct Single {
    owner: Arc<dyn Retire>,
    index: u32,
    holds: AtomicU32,
}

/// One registration. Atomics may be read at any time; the cells only by who holds the region, or
/// under the cache's lock while nobody does. All zeroes are a free one.
#[derive(Debug)]
pub(crate) struct Region<P: Provider> {
    /// Counted holds; for a moment also those that fail, of getters that lost a race.
    holds: AtomicU32,
    pages: AtomicU32,
    /// When it was last used ([`UseWord`](crate::UseWord)), written by hits when it is outdated. Of a
    /// single-use region, which no policy knows: the address of its [`Single`].
    word: AtomicU64,
    /// first page << 16 | zoned << 15 | checked << 14 | at once << 13 | access << 8 | subscribed << 7 | state
    shape: AtomicU64,
    key: UnsafeCell<MaybeUninit<P::Key>>,
    /// Written unless the region is free.
    mr: UnsafeCell<MaybeUninit<Option<P::Mr>>>,
}

/// The longest region, in pages (16 TiB).
pub(crate) const REGION_PAGES_MAX: u64 = u32::MAX as u64;

// SAFETY: the cells hold `Send + Sync` values (bounds of `Provider`'s types). They are written only by
// `fill` and `take`, while no hold exists; they are read by holders. The hold protocol orders these
// (see `hold`). What `word` may point to is `Send + Sync`, too: an `Arc<dyn Retire>` and numbers.
unsafe impl<P: Provider> Sync for Region<P> {}
// SAFETY: as above; nothing in a record belongs to a thread.
unsafe impl<P: Provider> Send for Region<P> {}

impl<P: Provider> Region<P> {
    fn new() -> Self {
        Self {
            holds: AtomicU32::new(0),
            pages: AtomicU32::new(0),
            word: AtomicU64::new(0),
            shape: AtomicU64::new(0),
            key: UnsafeCell::new(MaybeUninit::uninit()),
            mr: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// What a slot that holds it contains: its address. Not another region's of any cache, since
    /// records do not move, and a slab is freed only when nobody holds any of its regions.
    #[inline(always)]
    pub(crate) fn tag(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }

    pub(crate) fn range(&self) -> PageRange {
        let (first, pages) = (self.first_page(), self.pages());
        PageRange::from_pages(first, pages).unwrap_or(PageRange::everything())
    }

    pub(crate) fn pages(&self) -> u64 {
        u64::from(self.pages.load(Ordering::Relaxed))
    }

    fn first_page(&self) -> u64 {
        self.shape.load(Ordering::Relaxed) >> 16
    }

    pub(crate) fn access(&self) -> Access {
        Access::from_bits_truncate((self.shape.load(Ordering::Relaxed) >> 8) as u8)
    }

    /// Whether each lookup must ask the monitor.
    pub(crate) fn is_checked(&self) -> bool {
        self.shape.load(Ordering::Relaxed) & CHECKED != 0
    }

    /// Whether the monitor watches it, and is to be told of its end.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.shape.load(Ordering::Relaxed) & SUBSCRIBED != 0
    }

    /// Whether its pages are to go back without delay.
    pub(crate) fn is_at_once(&self) -> bool {
        self.shape.load(Ordering::Relaxed) & AT_ONCE != 0
    }

    /// Whether widening counts it.
    pub(crate) fn is_zoned(&self) -> bool {
        self.shape.load(Ordering::Relaxed) & ZONED != 0
    }

    /// Makes widening count it; under the cache's lock.
    pub(crate) fn set_zoned(&self) {
        let shape = self.shape.load(Ordering::Relaxed);
        self.shape.store(shape | ZONED, Ordering::Release);
    }

    pub(crate) fn state(&self) -> State {
        STATES[(self.shape.load(Ordering::Acquire) & STATE_MASK) as usize]
    }

    /// Changes the state; under the cache's lock.
    pub(crate) fn set_state(&self, state: State) {
        let shape = self.shape.load(Ordering::Relaxed) & !STATE_MASK;
        self.shape.store(shape | state as u64, Ordering::Release);
    }

    /// When it was last used.
    pub(crate) fn last_use(&self) -> UseWord {
        UseWord::from_bits(self.word.load(Ordering::Relaxed))
    }

    /// Notes a use; two loads, mostly.
    #[inline(always)]
    pub(crate) fn touch(&self, clock: &UseClock) {
        clock.hit(&self.word, self.first_page());
    }

    /// Whether [`touch`](Self::touch) would write.
    #[inline(always)]
    pub(crate) fn is_use_due(&self, clock: &UseClock) -> bool {
        clock.is_due(&self.word)
    }

    pub(super) fn holds(&self) -> &AtomicU32 {
        &self.holds
    }

    /// Whether counted holds exist. The caller unlinked the region and passed a full fence.
    pub(crate) fn is_counted(&self) -> bool {
        self.holds.load(Ordering::Acquire) != 0
    }

    /// The key, for a holder.
    ///
    /// # Safety
    ///
    /// The caller holds the region.
    #[inline(always)]
    pub(super) unsafe fn key(&self) -> P::Key {
        // SAFETY: a region can be held only after `fill` wrote the key (the entry that led here
        // was stored with Release after it), and `take` runs only when nobody holds it.
        self.key.with(|key| unsafe { (*key).assume_init() })
    }

    /// The first hold on a single-use region. Under the cache's lock, before anyone knows the region.
    pub(super) fn hold_single(&self, owner: Arc<dyn Retire>, index: u32) {
        let single = Box::into_raw(Box::new(Single { owner, index, holds: AtomicU32::new(1) }));
        self.word.store(single.expose_provenance() as u64, Ordering::Release);
    }

    fn single(&self) -> *mut Single {
        std::ptr::with_exposed_provenance_mut(self.word.load(Ordering::Acquire) as usize)
    }

    /// One more, by a holder.
    pub(super) fn hold_single_again(&self) {
        // SAFETY: made by `hold_single`, and freed by the last put alone: the caller has a hold.
        unsafe { &*self.single() }.holds.fetch_add(1, Ordering::Relaxed);
    }

    /// One hold on a single-use region ends. For the last one: who shall be told, and of which index.
    pub(super) fn put_single(&self) -> Option<(Arc<dyn Retire>, u32)> {
        let single = self.single();
        // Release: this holder's use comes before the last one's put; Acquire: and so for that one.
        // SAFETY: as in `hold_single_again`.
        if unsafe { &*single }.holds.fetch_sub(1, Ordering::AcqRel) != 1 {
            return None;
        }
        // SAFETY: a box of `hold_single`; this was the last hold, and nobody can find the region: it is
        // deregistered, and its record filled again, only after the owner was told.
        let Single { owner, index, .. } = *unsafe { Box::from_raw(single) };
        Some((owner, index))
    }

    /// Makes the record a region. Under the cache's lock.
    ///
    /// # Safety
    ///
    /// The record is [`State::Free`] and its index is not in the table.
    unsafe fn fill(&self, new: NewRegion<P>) {
        let flags = u64::from(new.stamp.is_some()) * CHECKED
            + u64::from(new.subscribed) * SUBSCRIBED
            + u64::from(new.zoned) * ZONED
            + u64::from(new.at_once) * AT_ONCE;
        let shape =
            new.range.first_page() << 16 | flags | u64::from(new.access.bits()) << 8 | new.state as u64;
        // SAFETY: a free record's cells are read by nobody: a slot or count that still names its
        // index comes from a getter that lost the race, and such a getter undoes without reading.
        unsafe {
            self.key.with_mut(|key| _ = (*key).write(new.key));
            self.mr.with_mut(|mr| _ = (*mr).write(Some(new.mr)));
        }
        assert!(new.range.pages() <= REGION_PAGES_MAX, "longer requests are refused");
        self.pages.store(new.range.pages() as u32, Ordering::Relaxed);
        self.word.store(UseWord::first(new.now).bits(), Ordering::Relaxed);
        self.shape.store(shape, Ordering::Release);
    }
}

/// What a record is filled with.
pub(crate) struct NewRegion<P: Provider> {
    pub(crate) range: PageRange,
    pub(crate) access: Access,
    pub(crate) state: State,
    pub(crate) key: P::Key,
    pub(crate) mr: P::Mr,
    pub(crate) stamp: Option<Stamp>,
    pub(crate) subscribed: bool,
    pub(crate) zoned: bool,
    pub(crate) at_once: bool,
    pub(crate) now: u64,
}

impl<P: Provider> Drop for Region<P> {
    /// A registration that was not given back goes with its record.
    fn drop(&mut self) {
        if self.state() != State::Free {
            // SAFETY: written by `fill`, since the region is not free; nobody holds it any more.
            self.mr.with_mut(|mr| unsafe { (*mr).assume_init_drop() });
        }
    }
}

/// Records by index: one reservation, backed where it is touched, or (where that is refused, as under
/// `ulimit -v`) segments from the heap, made when they are needed.
#[derive(Debug)]
pub(crate) struct Slab<P: Provider> {
    records: Records<P>,
    /// Records that were filled at least once.
    filled: AtomicU32,
}

#[derive(Debug)]
enum Records<P: Provider> {
    Flat(Reservation, Arc<dyn Host>),
    Segments(Box<[AtomicPtr<Region<P>>; SEGMENTS]>),
}

impl<P: Provider> Slab<P> {
    pub(crate) fn new(host: Arc<dyn Host>) -> Self {
        let records = match host.reserve_kept(size_of::<Region<P>>() * MAX_REGIONS as usize) {
            Some(reservation) if !cfg!(loom) => Records::Flat(reservation, host),
            _ => Records::Segments(no_segments()),
        };
        Self { records, filled: AtomicU32::new(0) }
    }

    /// The record at `index`, which the slab has handed out before.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Region<P>> {
        match &self.records {
            // SAFETY: the start of as many zeroed records as `at` asks for, which live until the slab
            // is dropped.
            Records::Flat(reservation, _) => Some(unsafe { at(flat_start(reservation), index).as_ref() }),
            Records::Segments(segments) => {
                let segment = segments[(index >> SEGMENT_SHIFT) as usize % SEGMENTS].load(Ordering::Acquire);
                let at = index as usize % SEGMENT;
                // SAFETY: null, or the start of `SEGMENT` records that `get_or_grow` made and stored
                // with Release; they live until the slab is dropped.
                unsafe { segment.add(if segment.is_null() { 0 } else { at }).as_ref() }
            }
        }
    }

    /// The index of a record of this slab.
    pub(crate) fn index_of(&self, region: &Region<P>) -> Option<u32> {
        let at = std::ptr::from_ref(region).addr();
        let place = |start: usize, most: usize| {
            let place = at.checked_sub(start)? / size_of::<Region<P>>();
            (place < most).then_some(place)
        };
        match &self.records {
            Records::Flat(reservation, _) => place(reservation.base, MAX_REGIONS as usize).map(|n| n as u32),
            Records::Segments(segments) => {
                let made = segments.iter().map(|s| s.load(Ordering::Acquire)).take_while(|s| !s.is_null());
                made.enumerate()
                    .find_map(|(n, s)| place(s.addr(), SEGMENT).map(|at| (n * SEGMENT + at) as u32))
            }
        }
    }

    /// The record at `index`, made if it is new. Under the cache's lock.
    pub(crate) fn get_or_grow(&self, index: u32) -> &Region<P> {
        if let Records::Segments(segments) = &self.records {
            let at = &segments[(index >> SEGMENT_SHIFT) as usize];
            if at.load(Ordering::Relaxed).is_null() {
                let segment: Box<[Region<P>]> = (0..SEGMENT).map(|_| Region::new()).collect();
                at.store(Box::into_raw(segment).cast(), Ordering::Release);
            }
        }
        self.filled.store(self.filled.load(Ordering::Relaxed).max(index + 1), Ordering::Relaxed);
        self.get(index).expect("just made")
    }

    /// Fills the free record `index`. Under the cache's lock.
    pub(crate) fn fill(&self, index: u32, new: NewRegion<P>) -> &Region<P> {
        let region = self.get_or_grow(index);
        assert_eq!(region.state(), State::Free, "index handed out twice");
        // SAFETY: the state was just checked, under the lock that alone changes it; a free
        // region's index is in no table (`Unlinked` regions become free only after that).
        unsafe { region.fill(new) };
        region
    }

    /// Takes the registration out of an unlinked record that nobody holds.
    ///
    /// # Safety
    ///
    /// The region is unlinked from the table, and since then an asymmetric fence and a scan of
    /// slots and count found no hold (so none can appear).
    pub(crate) unsafe fn take(&self, index: u32) -> Option<P::Mr> {
        let region = self.get(index).filter(|r| r.state() != State::Free)?;
        // SAFETY: by the contract nobody holds the region, nor can anybody begin to: new holds
        // need a table entry that names it. It is not free, so `fill` wrote the cell.
        region.mr.with_mut(|mr| unsafe { (*mr).assume_init_mut() }.take())
    }
}

impl<P: Provider> Drop for Slab<P> {
    fn drop(&mut self) {
        match &self.records {
            Records::Flat(reservation, host) => {
                for index in 0..self.filled.load(Ordering::Relaxed) {
                    // SAFETY: a record of this slab, to which nobody refers; not used again.
                    unsafe { std::ptr::drop_in_place(at(flat_start::<P>(reservation), index).as_ptr()) };
                }
                let Reservation { base, len_bytes, wiped_on_fork } = *reservation;
                // SAFETY: it came from this host, and the slab goes with it.
                unsafe { host.release(Reservation { base, len_bytes, wiped_on_fork }) }
            }
            Records::Segments(segments) => segments.iter().for_each(free_segment),
        }
    }
}

fn free_segment<P: Provider>(at: &AtomicPtr<Region<P>>) {
    let first = at.load(Ordering::Relaxed);
    if !first.is_null() {
        // SAFETY: made by `get_or_grow` from a box of `SEGMENT` records; nobody refers to them.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(first, SEGMENT)) });
    }
}

fn flat_start<P: Provider>(reservation: &Reservation) -> NonNull<Region<P>> {
    NonNull::new(std::ptr::with_exposed_provenance_mut(reservation.base)).expect("a mapping is not at zero")
}

/// The address of a record. `start` is that of [`MAX_REGIONS`] records.
#[inline(always)]
fn at<P: Provider>(start: NonNull<Region<P>>, index: u32) -> NonNull<Region<P>> {
    // SAFETY: in bounds by the mask.
    unsafe { start.add((index & (MAX_REGIONS - 1)) as usize) }
}

const _: () = assert!(MAX_REGIONS.is_power_of_two());

/// A flat slab, reached by one pointer.
#[derive(Debug)]
pub(crate) struct FlatSlab<P: Provider> {
    start: NonNull<Region<P>>,
    /// Keeps the records.
    slab: Arc<Slab<P>>,
}

// SAFETY: the pointer leads to records, which are `Sync`, of a slab that is kept.
unsafe impl<P: Provider> Send for FlatSlab<P> {}
// SAFETY: as above.
unsafe impl<P: Provider> Sync for FlatSlab<P> {}

impl<P: Provider> FlatSlab<P> {
    /// `None`: the slab is in segments. (A model's is; models shall go the same way all the same.)
    pub(crate) fn new(slab: Arc<Slab<P>>) -> Option<Self> {
        let start = match &slab.records {
            Records::Flat(reservation, _) => flat_start(reservation),
            Records::Segments(_) if cfg!(loom) => NonNull::dangling(),
            Records::Segments(_) => return None,
        };
        Some(Self { start, slab })
    }

    /// The record at `index`; one that was never filled is free.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&Region<P>> {
        if cfg!(loom) {
            return self.slab.get(index);
        }
        // SAFETY: the start of a flat slab, which is kept: zeroed or filled records.
        Some(unsafe { at(self.start, index).as_ref() })
    }
}

#[cfg(not(loom))]
fn no_segments<T>() -> Box<[AtomicPtr<T>; SEGMENTS]> {
    // Zeroed by the allocator, so not touched here.
    let nulls = vec![std::ptr::null_mut::<T>(); SEGMENTS].into_boxed_slice();
    let nulls = Box::into_raw(nulls).cast::<[AtomicPtr<T>; SEGMENTS]>();
    // SAFETY: `SEGMENTS` pointers from one box; `AtomicPtr<T>` has the size, alignment and
    // representation of `*mut T`.
    unsafe { Box::from_raw(nulls) }
}

#[cfg(loom)]
fn no_segments<T>() -> Box<[AtomicPtr<T>; SEGMENTS]> {
    Box::new(std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())))
}
