//! [`Slab`]: the records of regions. Addresses are stable, and memory is never freed while the
//! cache lives, so that a late reader of a recycled index reads a record, not garbage.

use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::interval_map::INDEX_BITS;
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

/// What few regions have.
enum Extra {
    /// What [`Monitor::validate`](crate::Monitor::validate) compares, where it must be asked.
    Stamp(Stamp),
    /// Of a single-use region: who deregisters it, and its index.
    Owner(Arc<dyn Retire>, u32),
}

impl std::fmt::Debug for Extra {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Stamp(_) => "Stamp",
            Self::Owner(..) => "Owner",
        })
    }
}

/// One registration. Atomics may be read at any time; the cells only by who holds the region, or
/// under the cache's lock while nobody does.
#[derive(Debug)]
pub(crate) struct Region<P: Provider> {
    /// Counted holds; for a moment also those that fail, of getters that lost a race.
    holds: AtomicU32,
    /// Holds on a single-use region. Apart from `holds`, since the last put must be told from the
    /// others, and late getters disturb `holds`.
    single_holds: AtomicU32,
    /// When it was last used ([`UseWord`](crate::UseWord)), written by hits when it is outdated.
    word: AtomicU64,
    first_page: AtomicU64,
    /// pages << 16 | zoned << 15 | checked << 14 | at once << 13 | access << 8 | subscribed << 7 | state
    shape: AtomicU64,
    key: UnsafeCell<MaybeUninit<P::Key>>,
    mr: UnsafeCell<Option<P::Mr>>,
    extra: UnsafeCell<Option<Box<Extra>>>,
}

// SAFETY: the cells hold `Send + Sync` values (bounds of `Provider`'s types and of `Retire`;
// `Stamp` is plain data). They are written only by `fill` and `take`, while no hold exists, and by
// the last holder of a single-use region; they are read by holders. The hold protocol orders
// these (see `hold`).
unsafe impl<P: Provider> Sync for Region<P> {}
// SAFETY: as above; nothing in a record belongs to a thread.
unsafe impl<P: Provider> Send for Region<P> {}

impl<P: Provider> Region<P> {
    fn new() -> Self {
        Self {
            holds: AtomicU32::new(0),
            single_holds: AtomicU32::new(0),
            word: AtomicU64::new(0),
            first_page: AtomicU64::new(0),
            shape: AtomicU64::new(0),
            key: UnsafeCell::new(MaybeUninit::uninit()),
            mr: UnsafeCell::new(None),
            extra: UnsafeCell::new(None),
        }
    }

    /// What a slot that holds it contains: its address. Not another region's of any cache, since
    /// records do not move, and a slab is freed only when nobody holds any of its regions.
    #[inline(always)]
    pub(crate) fn tag(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }

    pub(crate) fn range(&self) -> PageRange {
        let (first, pages) = (self.first_page.load(Ordering::Relaxed), self.pages());
        PageRange::from_pages(first, pages).unwrap_or(PageRange::everything())
    }

    pub(crate) fn pages(&self) -> u64 {
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
        clock.hit(&self.word, self.first_page.load(Ordering::Relaxed));
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

    /// The stamp, for a holder.
    ///
    /// # Safety
    ///
    /// The caller holds the region.
    pub(super) unsafe fn stamp(&self) -> Option<Stamp> {
        // SAFETY: as for `key`.
        self.extra.with(|extra| match unsafe { (*extra).as_deref() } {
            Some(Extra::Stamp(stamp)) => Some(*stamp),
            _ => None,
        })
    }

    /// The first hold on a single-use region. Under the cache's lock, before anyone knows the region.
    pub(super) fn hold_single(&self, owner: Arc<dyn Retire>, index: u32) {
        self.single_holds.store(1, Ordering::Relaxed);
        let owner = Some(Box::new(Extra::Owner(owner, index)));
        // SAFETY: nobody else has a hold, which alone lets the cell be used.
        self.extra.with_mut(|extra| unsafe { *extra = owner });
    }

    /// One more, by a holder.
    pub(super) fn hold_single_again(&self) {
        self.single_holds.fetch_add(1, Ordering::Relaxed);
    }

    /// One hold on a single-use region ends. For the last one: who shall be told, and of which index.
    pub(super) fn put_single(&self) -> Option<(Arc<dyn Retire>, u32)> {
        // Release: this holder's use comes before the last one's put; Acquire: and so for that one.
        if self.single_holds.fetch_sub(1, Ordering::AcqRel) != 1 {
            return None;
        }
        // SAFETY: this was the last hold, nobody can find the region, and it is deregistered and
        // its record filled again only after the owner was told: nobody else uses the cell.
        let extra = self.extra.with_mut(|extra| unsafe { (*extra).take() });
        match *extra? {
            Extra::Owner(owner, index) => Some((owner, index)),
            Extra::Stamp(_) => None,
        }
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
        let shape = new.range.pages() << 16 | flags | u64::from(new.access.bits()) << 8 | new.state as u64;
        // SAFETY: a free record's cells are read by nobody: a slot or count that still names its
        // index comes from a getter that lost the race, and such a getter undoes without reading.
        unsafe {
            self.key.with_mut(|key| _ = (*key).write(new.key));
            self.mr.with_mut(|mr| *mr = Some(new.mr));
            self.extra.with_mut(|extra| *extra = new.stamp.map(|stamp| Box::new(Extra::Stamp(stamp))));
        }
        self.first_page.store(new.range.first_page(), Ordering::Relaxed);
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

/// Records by index, in segments that are made when they are needed. The table of segments is
/// zeroed memory that is backed where it is touched.
#[derive(Debug)]
pub(crate) struct Slab<P: Provider> {
    segments: Box<[AtomicPtr<Region<P>>; SEGMENTS]>,
}

impl<P: Provider> Slab<P> {
    pub(crate) fn new() -> Self {
        Self { segments: no_segments() }
    }

    /// The record at `index`, which the slab has handed out before.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&Region<P>> {
        let segment = self.segments[(index >> SEGMENT_SHIFT) as usize % SEGMENTS].load(Ordering::Acquire);
        let at = index as usize % SEGMENT;
        // SAFETY: null, or the start of `SEGMENT` records that `get_or_grow` made and stored with
        // Release; they live until the slab is dropped.
        unsafe { segment.add(if segment.is_null() { 0 } else { at }).as_ref() }
    }

    /// The index of a record of this slab.
    pub(crate) fn index_of(&self, region: &Region<P>) -> Option<u32> {
        let at = std::ptr::from_ref(region).addr();
        let made = self.segments.iter().map(|s| s.load(Ordering::Acquire)).take_while(|s| !s.is_null());
        made.enumerate().find_map(|(n, segment)| {
            let place = at.checked_sub(segment.addr())? / size_of::<Region<P>>();
            (place < SEGMENT).then_some((n * SEGMENT + place) as u32)
        })
    }

    /// The record at `index`, made if it is new. Under the cache's lock.
    pub(crate) fn get_or_grow(&self, index: u32) -> &Region<P> {
        let at = &self.segments[(index >> SEGMENT_SHIFT) as usize];
        if at.load(Ordering::Relaxed).is_null() {
            let segment: Box<[Region<P>]> = (0..SEGMENT).map(|_| Region::new()).collect();
            at.store(Box::into_raw(segment).cast(), Ordering::Release);
        }
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
        let region = self.get(index)?;
        // SAFETY: by the contract nobody holds the region, nor can anybody begin to: new holds
        // need a table entry that names it.
        region.mr.with_mut(|mr| unsafe { (*mr).take() })
    }
}

impl<P: Provider> Drop for Slab<P> {
    fn drop(&mut self) {
        for at in self.segments.iter() {
            let first = at.load(Ordering::Relaxed);
            if first.is_null() {
                break; // indices are handed out in order
            }
            // SAFETY: made by `get_or_grow` from a box of `SEGMENT` records; nobody refers to them.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(first, SEGMENT)) });
        }
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
