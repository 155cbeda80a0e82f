//! [`Directory`]: from a chunk's number to its [`Chunk`], and from there to a [`Leaf`].

#[cfg(not(loom))]
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use super::entry::Entry;
use crate::host::{Host, Reservation};
use crate::sync::{AtomicU64, AtomicUsize, Ordering};
use crate::{ADDRESS_SPACE_END, PAGE_SIZE};

/// Pages in a chunk (2 MiB).
pub(super) const CHUNK_PAGES: u64 = if cfg!(loom) { 4 } else { 512 };
/// A model's addresses end early.
pub(super) const CHUNKS: usize =
    if cfg!(loom) { 2 } else { ADDRESS_SPACE_END / PAGE_SIZE / CHUNK_PAGES as usize };
/// Chunks in a node of the radix that stands in for a reservation.
const NODE: usize = if cfg!(loom) { 1 } else { 1 << 12 };

/// What is known of 2 MiB of address space.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Chunk {
    /// Address of the [`Leaf`], or zero.
    leaf: AtomicUsize,
    /// The region that covers all of the chunk, or, while there is no leaf, the only one that lies in
    /// it: entered once, so that neither large nor lone regions cost a leaf.
    pub(super) whole: AtomicU64,
}

/// One entry a page of a chunk, and how many are in use.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Leaf {
    entries: [AtomicU64; CHUNK_PAGES as usize],
    filled: AtomicU64,
}

impl Leaf {
    #[inline(always)]
    pub(super) fn entry(&self, page: u64) -> &AtomicU64 {
        &self.entries[(page % CHUNK_PAGES) as usize]
    }
    /// Entries in use; writers only.
    pub(super) fn filled(&self) -> u64 {
        self.filled.load(Ordering::Relaxed)
    }
    pub(super) fn add_filled(&self, n: u64) {
        self.filled.store(self.filled() + n, Ordering::Relaxed);
    }
    pub(super) fn sub_filled(&self, n: u64) {
        self.filled.store(self.filled() - n, Ordering::Relaxed);
    }
}

impl Chunk {
    #[inline(always)]
    pub(super) fn leaf(&self) -> Option<&Leaf> {
        let leaf = std::ptr::with_exposed_provenance::<Leaf>(self.leaf.load(Ordering::Acquire));
        // SAFETY: null, or stored with Release by `grow_leaf` after the leaf was made; leaves
        // live until the directory is dropped, and `&self` borrows the directory.
        unsafe { leaf.as_ref() }
    }

    /// Also gives the pages of a lone region, which was entered for the chunk, entries of their own.
    fn grow_leaf(&self, new: NonNull<Leaf>) -> &Leaf {
        let lone = Entry::load(&self.whole);
        let (start, end) = lone.extent();
        let is_whole_chunk = start == 0 && end >= CHUNK_PAGES;
        let is_lone = !lone.is_empty() && !is_whole_chunk;
        if is_lone {
            // SAFETY: the caller just made it, and nobody else knows it.
            let leaf = unsafe { new.as_ref() };
            let pages = start..end.min(CHUNK_PAGES);
            leaf.add_filled(pages.end - pages.start);
            pages.for_each(|page| leaf.entry(page).store(lone.of_page(page).word(), Ordering::Relaxed));
        }
        self.leaf.store(new.as_ptr().expose_provenance(), Ordering::Release);
        if is_lone {
            self.whole.store(0, Ordering::Release); // after the leaf, which says the same
        }
        self.leaf().expect("just made")
    }

    fn free_leaf(&self) {
        let leaf = std::ptr::with_exposed_provenance_mut::<Leaf>(self.leaf.load(Ordering::Relaxed));
        if let Some(leaf) = NonNull::new(leaf) {
            // SAFETY: made by `fresh` in `grow_leaf`; called from the directory's drop only.
            unsafe { free(leaf) }
        }
    }
}

/// On the heap, all zeroes.
#[cfg(not(loom))]
fn fresh<T: Fresh>() -> NonNull<T> {
    let layout = Layout::new::<T>();
    // SAFETY: used with `Leaf` and `Node` alone, whose size is not zero.
    let memory = unsafe { alloc_zeroed(layout) };
    NonNull::new(memory.cast()).unwrap_or_else(|| handle_alloc_error(layout))
}

/// # Safety
/// `it` came from [`fresh`], and nothing refers to it.
#[cfg(not(loom))]
unsafe fn free<T>(it: NonNull<T>) {
    // SAFETY: allocated by `fresh` with this layout.
    unsafe { dealloc(it.as_ptr().cast(), Layout::new::<T>()) }
}

/// loom's atomics are more than zeroes.
#[cfg(loom)]
fn fresh<T: Fresh>() -> NonNull<T> {
    NonNull::from(Box::leak(Box::new(T::fresh())))
}

/// # Safety
/// `it` came from [`fresh`], and nothing refers to it.
#[cfg(loom)]
unsafe fn free<T>(it: NonNull<T>) {
    // SAFETY: leaked by `fresh`.
    drop(unsafe { Box::from_raw(it.as_ptr()) });
}

/// What [`fresh`] makes; all-zero bytes are a valid, empty one.
trait Fresh {
    #[cfg(loom)]
    fn fresh() -> Self;
}

impl Fresh for Leaf {
    #[cfg(loom)]
    fn fresh() -> Self {
        Self { entries: std::array::from_fn(|_| AtomicU64::new(0)), filled: AtomicU64::new(0) }
    }
}

impl Fresh for Node {
    #[cfg(loom)]
    fn fresh() -> Self {
        std::array::from_fn(|_| Chunk::default())
    }
}

type Node = [Chunk; NODE];

/// All chunks of the address space.
#[derive(Debug)]
pub(super) struct Directory {
    chunks: Chunks,
    host: Arc<dyn Host>,
}

#[derive(Debug)]
enum Chunks {
    /// Reserved address space, backed where touched.
    Flat(Reservation, Leaves),
    /// Nodes from the heap, by the chunk's number / [`NODE`].
    Radix(Box<[AtomicUsize]>),
}

/// Where the leaves of a flat directory come from.
#[derive(Debug)]
struct Leaves {
    /// Room for as many leaves as there are chunks, in huge pages where there are many: so that a lookup
    /// among many regions seldom waits for the page table.
    arena: Option<Reservation>,
    taken: AtomicUsize,
    /// Without an arena: the numbers of the chunks whose leaf is from the heap, for drop.
    on_heap: std::sync::Mutex<Vec<u32>>,
}

impl Leaves {
    fn new(host: &dyn Host) -> Self {
        let arena = host.reserve_kept(CHUNKS * size_of::<Leaf>());
        Self { arena, taken: AtomicUsize::new(0), on_heap: std::sync::Mutex::default() }
    }

    /// The leaf for a chunk that has none.
    fn take(&self, number: u64) -> NonNull<Leaf> {
        let Some(arena) = &self.arena else {
            self.on_heap.lock().unwrap_or_else(|e| e.into_inner()).push(number as u32);
            return fresh();
        };
        let at = self.taken.fetch_add(1, Ordering::Relaxed);
        assert!(at < CHUNKS, "one leaf a chunk");
        let leaves = std::ptr::with_exposed_provenance_mut::<Leaf>(arena.base);
        // SAFETY: within the reservation, which has room for `CHUNKS` leaves; zeroes are an empty one.
        let leaf = unsafe { leaves.add(at) };
        NonNull::new(leaf).expect("a mapping is not at zero")
    }
}

impl Directory {
    pub(super) fn new(host: Arc<dyn Host>) -> Self {
        let chunks = match host.reserve(CHUNKS * size_of::<Chunk>()) {
            Some(reservation) if !cfg!(loom) => Chunks::Flat(reservation, Leaves::new(&*host)),
            _ => Chunks::Radix((0..CHUNKS / NODE).map(|_| AtomicUsize::new(0)).collect()),
        };
        Self { chunks, host }
    }

    /// The chunk, unless nothing was ever entered near it.
    #[inline(always)]
    pub(super) fn chunk(&self, number: u64) -> Option<&Chunk> {
        debug_assert!((number as usize) < CHUNKS);
        match &self.chunks {
            Chunks::Flat(reservation, _) => Some(flat(reservation, number as usize)),
            Chunks::Radix(nodes) => Some(&node(&nodes[number as usize / NODE])?[number as usize % NODE]),
        }
    }

    /// Where the chunks lie in a flat directory.
    pub(super) fn flat_base(&self) -> Option<NonNull<Chunk>> {
        match &self.chunks {
            Chunks::Flat(reservation, _) => NonNull::new(flat_start(reservation).cast_mut()),
            Chunks::Radix(_) => None,
        }
    }

    /// The chunk, made if needed. Under the cache's lock.
    pub(super) fn chunk_or_grow(&self, number: u64) -> &Chunk {
        match &self.chunks {
            Chunks::Flat(reservation, _) => flat(reservation, number as usize),
            Chunks::Radix(nodes) => grow_node(&nodes[number as usize / NODE], number as usize % NODE),
        }
    }

    /// The leaf of a chunk, made if there is none. Under the cache's lock.
    pub(super) fn leaf_or_grow(&self, number: u64) -> &Leaf {
        let chunk = self.chunk_or_grow(number);
        if let Some(leaf) = chunk.leaf() {
            return leaf;
        }
        chunk.grow_leaf(match &self.chunks {
            Chunks::Flat(_, leaves) => leaves.take(number),
            Chunks::Radix(_) => fresh(),
        })
    }
}

#[inline(always)]
fn flat(reservation: &Reservation, number: usize) -> &Chunk {
    assert!(number < CHUNKS);
    // SAFETY: the reservation is `CHUNKS * size_of::<Chunk>()` bytes of zeroed, page-aligned
    // memory, which the directory owns until it is dropped; zeroes are a valid `Chunk`.
    unsafe { &*flat_start(reservation).add(number) }
}

fn flat_start(reservation: &Reservation) -> *const Chunk {
    std::ptr::with_exposed_provenance(reservation.base)
}

#[inline(always)]
fn node(at: &AtomicUsize) -> Option<&Node> {
    let node = std::ptr::with_exposed_provenance::<Node>(at.load(Ordering::Acquire));
    // SAFETY: null, or stored with Release by `grow_node` after it was made; nodes live until
    // the directory is dropped.
    unsafe { node.as_ref() }
}

fn grow_node(at: &AtomicUsize, index: usize) -> &Chunk {
    if node(at).is_none() {
        let new: NonNull<Node> = fresh();
        at.store(new.as_ptr().expose_provenance(), Ordering::Release);
    }
    &node(at).expect("just made")[index]
}

impl Drop for Directory {
    fn drop(&mut self) {
        match &mut self.chunks {
            Chunks::Flat(reservation, leaves) => {
                let on_heap = leaves.on_heap.get_mut().unwrap_or_else(|e| e.into_inner());
                on_heap.drain(..).for_each(|number| flat(reservation, number as usize).free_leaf());
                let Reservation { base, len_bytes, wiped_on_fork } = *reservation;
                // SAFETY: both came from this host; the directory goes with them.
                unsafe {
                    self.host.release(Reservation { base, len_bytes, wiped_on_fork });
                    leaves.arena.take().into_iter().for_each(|arena| self.host.release(arena));
                }
            }
            Chunks::Radix(nodes) => nodes.iter().for_each(free_node),
        }
    }
}

fn free_node(at: &AtomicUsize) {
    let Some(chunks) = node(at) else { return };
    chunks.iter().for_each(Chunk::free_leaf);
    let node = std::ptr::with_exposed_provenance_mut::<Node>(at.load(Ordering::Relaxed));
    if let Some(node) = NonNull::new(node) {
        // SAFETY: made by `fresh` in `grow_node`; the directory is being dropped.
        unsafe { free(node) }
    }
}
