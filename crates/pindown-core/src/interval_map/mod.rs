//! The map from pages to regions.
//!
//! Readers take no lock: they load one entry for the first page of their request. An entry names
//! the region that covers its page and reaches furthest, with that region's access class and how
//! many pages it still covers from there; so one load answers most requests.
//!
//! Two levels: a flat directory with one word pair a 2 MiB chunk (reserved address space, backed
//! only where used; a radix node on hosts that cannot reserve), and leaves of 512 page entries.
//! Regions of many chunks are entered once a chunk instead of once a page, and so is a region that is
//! alone in its chunk.
//!
//! Regions that lose a page to one that reaches further are also kept in [`Hidden`], an ordered
//! set in size classes, which the slow path searches; so every overlap is found, and a lookup for
//! rights that the named region lacks still finds the one that has them.
//!
//! Writers hold the cache's lock.

mod directory;
mod entry;
mod flat;
mod hidden;
#[cfg(any(test, fuzzing))]
pub(crate) mod oracle;

pub(crate) use entry::{Entry, FAST, FAST_PAGES_MAX, INDEX_BITS, MAX_REGIONS, Want};
pub(crate) use flat::FlatTable;

use crate::host::Host;
use crate::sync::{AtomicU64, Ordering};
use crate::{PAGE_SHIFT, PageRange};
use directory::{CHUNK_PAGES, Chunk, Directory};
use hidden::Hidden;
use std::sync::Arc;

/// From this many pages on a region is entered by chunk where it fills chunks.
const BIG_PAGES: u64 = 2 * CHUNK_PAGES;

/// The lock-free half: what lookups read.
#[derive(Debug)]
pub(crate) struct Table {
    directory: Directory,
}

/// An entry that names a region for some page: where it is, and what was read.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    pub(crate) at: &'a AtomicU64,
    pub(crate) entry: Entry,
}

impl Table {
    pub(crate) fn new(host: Arc<dyn Host>) -> Self {
        Self { directory: Directory::new(host) }
    }

    /// An entry that serves `pages` pages from `page` with at least the rights `class`.
    #[inline(always)]
    pub(crate) fn find(&self, page: u64, pages: u64, class: u64) -> Option<Found<'_>> {
        if pages > FAST_PAGES_MAX {
            return None;
        }
        Self::find_in(self.directory.chunk(page / CHUNK_PAGES)?, Want::new(page, pages, class))
    }

    #[inline(always)]
    fn find_in(chunk: &Chunk, want: Want) -> Option<Found<'_>> {
        if let Some(at) = chunk.leaf().map(|leaf| leaf.entry(want.page)) {
            let entry = Entry::load(at);
            if entry.serves(want) {
                return Some(Found { at, entry });
            }
        }
        let (at, entry) = (&chunk.whole, Entry::load(&chunk.whole));
        entry.chunk_serves(want).then_some(Found { at, entry })
    }
}

/// A region as the map sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) index: u32,
    pub(crate) range: PageRange,
    /// Rights, with [`FAST`] where lookups need no slow path.
    pub(crate) class: u64,
}

/// The writers' half, kept under the cache's lock.
#[derive(Debug)]
pub(crate) struct IntervalMap {
    table: Arc<Table>,
    hidden: Hidden,
    /// Regions that touch each GiB, so that long empty ranges are passed over quickly.
    gibs: Vec<u32>,
}

const GIB_SHIFT: u32 = 30;

impl IntervalMap {
    pub(crate) fn new(table: Arc<Table>) -> Self {
        Self { table, hidden: Hidden::default(), gibs: vec![0; crate::ADDRESS_SPACE_END >> GIB_SHIFT] }
    }

    /// Adds a region. Pages outside `requested` get entries that send lookups to the slow path
    /// once, where it learns that they are wanted.
    pub(crate) fn insert(&mut self, span: Span, requested: PageRange) {
        let mut lost = false;
        for piece in pieces(span.range) {
            lost |= match piece {
                Piece::Chunk(chunk) => self.enter_chunk(span, chunk, requested),
                Piece::Pages(first, end) => self.enter_pages(span, first, end, requested),
            };
        }
        // What words cannot say is found by the slow path.
        if lost || Entry::saturates(span) {
            self.hidden.insert(span);
        }
        self.count_gibs(span.range, 1);
    }

    fn enter_chunk(&mut self, span: Span, chunk: u64, requested: PageRange) -> bool {
        let first = chunk * CHUNK_PAGES;
        let asked = PageRange::from_pages(first, CHUNK_PAGES).is_some_and(|r| requested.contains(r));
        let entry = Entry::of_chunk(span, chunk, asked);
        let table = self.table.clone();
        let at = &table.directory.chunk_or_grow(chunk).whole;
        if at.load(Ordering::Relaxed) != 0 && !is_whole(Entry::load(at)) {
            table.directory.leaf_or_grow(chunk); // where the lone region goes
        }
        let old = Entry::load(at);
        self.contend(at, old.extent().1 >= entry.extent().1, entry, span)
    }

    /// Enters a region that has a chunk to itself, or at least its words.
    fn enter_lone(&self, span: Span, first: u64, end: u64, requested: PageRange) -> bool {
        let (number, pages) = (first / CHUNK_PAGES, PageRange::from_pages(first, end - first));
        let chunk = self.table.directory.chunk_or_grow(number);
        let free = chunk.leaf().is_none() && chunk.whole.load(Ordering::Relaxed) == 0;
        let starts = first == span.range.first_page() || first.is_multiple_of(CHUNK_PAGES);
        let ends = end == span.range.end_page() || end.is_multiple_of(CHUNK_PAGES);
        let lone = free && starts && ends && pages.is_some_and(|pages| requested.contains(pages));
        if lone {
            chunk.whole.store(Entry::of_chunk(span, number, true).word(), Ordering::Release);
        }
        lone
    }

    fn enter_pages(&mut self, span: Span, first: u64, end: u64, requested: PageRange) -> bool {
        if self.enter_lone(span, first, end, requested) {
            return false;
        }
        let table = self.table.clone();
        let leaf = table.directory.leaf_or_grow(first / CHUNK_PAGES);
        let (mut lost, mut filled) = (false, 0);
        for page in first..end {
            let asked = requested.first_page() <= page && page < requested.end_page();
            let at = leaf.entry(page);
            filled += u64::from(at.load(Ordering::Relaxed) == 0);
            let (old, entry) = (Entry::load(at), Entry::new(span, page, asked));
            lost |= self.contend(at, old.reach() >= entry.reach(), entry, span);
        }
        leaf.add_filled(filled);
        lost
    }

    /// Stores `entry` unless the region there reaches as far (`reaches`). Returns whether it lost.
    fn contend(&mut self, at: &AtomicU64, reaches: bool, entry: Entry, span: Span) -> bool {
        let old = Entry::load(at);
        if reaches && !old.is_empty() && old.fast() >= entry.fast() {
            return true;
        }
        if !old.is_empty() && old.index() != span.index {
            self.hidden.note(old.index());
        }
        at.store(entry.word(), Ordering::Release);
        false
    }

    /// Regions displaced by inserts since the last call: the caller, who knows their spans, gives
    /// them to [`hide`](Self::hide).
    pub(crate) fn take_displaced(&mut self) -> Vec<u32> {
        self.hidden.take_noted()
    }

    /// Adds a region that no lookup finds, but [`overlapping`](Self::overlapping) does.
    pub(crate) fn insert_hidden(&mut self, span: Span) {
        self.hidden.insert(span);
        self.count_gibs(span.range, 1);
    }

    /// Makes an inserted `span` findable by the slow path where it is not named by entries.
    pub(crate) fn hide(&mut self, span: Span) {
        self.hidden.insert(span);
    }

    /// Removes a region's entries. Readers that loaded one before notice when they load it again.
    pub(crate) fn remove(&mut self, span: Span) {
        self.hidden.remove(span);
        for piece in pieces(span.range) {
            match piece {
                Piece::Chunk(chunk) => self.clear_chunk(span.index, chunk),
                Piece::Pages(first, end) => self.clear_pages(span.index, first, end),
            }
        }
        self.count_gibs(span.range, -1);
    }

    fn clear_chunk(&self, index: u32, chunk: u64) {
        if let Some(chunk) = self.table.directory.chunk(chunk) {
            clear_if(&chunk.whole, index);
        }
    }

    fn clear_pages(&self, index: u32, first: u64, end: u64) {
        let Some(chunk) = self.table.directory.chunk(first / CHUNK_PAGES) else { return };
        clear_if(&chunk.whole, index);
        let Some(leaf) = chunk.leaf() else { return };
        let cleared = (first..end).filter(|page| clear_if(leaf.entry(*page), index)).count();
        leaf.sub_filled(cleared as u64);
    }

    /// Calls `found` with the index of each region that overlaps `range`; some more than once.
    pub(crate) fn overlapping(&self, range: PageRange, mut found: impl FnMut(u32)) {
        self.hidden.overlapping(range, &mut found);
        let (mut page, end) = (range.first_page(), range.end_page());
        while page < end {
            if self.gibs[(page << PAGE_SHIFT >> GIB_SHIFT) as usize] == 0 {
                page = ((page << PAGE_SHIFT >> GIB_SHIFT) + 1) << (GIB_SHIFT - PAGE_SHIFT);
                continue;
            }
            let stop = end.min((page / CHUNK_PAGES + 1) * CHUNK_PAGES);
            self.named_in_chunk(page, stop, &mut found);
            page = stop;
        }
    }

    /// The regions named by entries of pages `first..end`, which lie in one chunk.
    fn named_in_chunk(&self, first: u64, end: u64, found: &mut impl FnMut(u32)) {
        let Some(chunk) = self.table.directory.chunk(first / CHUNK_PAGES) else { return };
        let whole = Entry::load(&chunk.whole);
        let (start, beyond) = whole.extent();
        let offset = first % CHUNK_PAGES;
        if !whole.is_empty() && start < offset + (end - first) && offset < beyond {
            found(whole.index());
        }
        let Some(leaf) = chunk.leaf().filter(|l| l.filled() > 0) else { return };
        let mut last = Entry::EMPTY;
        for page in first..end {
            let entry = Entry::load(leaf.entry(page));
            if !entry.is_empty() && (last.is_empty() || entry.index() != last.index()) {
                found(entry.index());
                last = entry;
            }
        }
    }

    /// Some region that covers `range` with at least the rights `class`.
    pub(crate) fn find(&self, range: PageRange, class: u64) -> Option<u32> {
        let class = class & !FAST;
        match self.table.find(range.first_page(), range.pages(), class) {
            Some(found) => Some(found.entry.index()),
            None => self.hidden.find(range, class),
        }
    }

    /// Lets lookups that start at `page` find `span` without the slow path.
    pub(crate) fn promote(&mut self, span: Span, page: u64) {
        let known = self.table.find(page, 1, span.class);
        if known.is_some_and(|found| found.entry.index() == span.index) {
            return;
        }
        let in_chunk = pieces(span.range).any(|p| matches!(p, Piece::Chunk(c) if c == page / CHUNK_PAGES));
        if in_chunk {
            self.enter_chunk(span, page / CHUNK_PAGES, span.range);
        } else {
            self.enter_pages(span, page, page + 1, span.range);
        }
    }

    fn count_gibs(&mut self, range: PageRange, by: i32) {
        for gib in range.start() >> GIB_SHIFT..=(range.end() - 1) >> GIB_SHIFT {
            let counted = self.gibs[gib].checked_add_signed(by);
            // A wrong count would hide regions from invalidation.
            self.gibs[gib] = counted.expect("each region is inserted and removed once");
        }
    }
}

/// Whether a chunk's word names a region that covers the chunk.
fn is_whole(entry: Entry) -> bool {
    let (start, end) = entry.extent();
    start == 0 && end >= CHUNK_PAGES
}

fn clear_if(at: &AtomicU64, index: u32) -> bool {
    let entry = Entry::load(at);
    let ours = !entry.is_empty() && entry.index() == index;
    if ours {
        at.store(0, Ordering::Release);
    }
    ours
}

/// How a range is entered.
enum Piece {
    /// One whole chunk, by number.
    Chunk(u64),
    /// Pages `.0..`.1`, in one chunk.
    Pages(u64, u64),
}

fn pieces(range: PageRange) -> impl Iterator<Item = Piece> {
    let big = range.pages() >= BIG_PAGES;
    let (mut page, end) = (range.first_page(), range.end_page());
    std::iter::from_fn(move || {
        if page >= end {
            return None;
        }
        let first = page;
        page = end.min((page / CHUNK_PAGES + 1) * CHUNK_PAGES);
        let whole = big && page - first == CHUNK_PAGES;
        Some(if whole { Piece::Chunk(first / CHUNK_PAGES) } else { Piece::Pages(first, page) })
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
