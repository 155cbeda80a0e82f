//! [`Entry`]: what one word says about one page, or about one chunk.

use super::Span;
use super::directory::CHUNK_PAGES;
use crate::sync::{AtomicU64, Ordering};

/// Bits of an index.
pub(crate) const INDEX_BITS: u32 = 28;
const CLASS_BITS: u32 = 8;
const REACH_SHIFT: u32 = INDEX_BITS + CLASS_BITS;
const REACH_MAX: u64 = (1 << (64 - REACH_SHIFT)) - 1;
/// A chunk's word counts from the chunk's start, and says where in the chunk its region begins.
const START_BITS: u32 = 9;
const END_SHIFT: u32 = REACH_SHIFT + START_BITS;
const END_MAX: u64 = (1 << (64 - END_SHIFT)) - 1;

/// Regions that entries can name.
pub(crate) const MAX_REGIONS: u32 = 1 << 27;

/// Class bit: a lookup may use this entry without the slow path.
pub(crate) const FAST: u64 = 1 << 7;

/// Longer requests take the slow path: their need does not fit a chunk's word.
pub(crate) const FAST_PAGES_MAX: u64 = END_MAX - 2 * CHUNK_PAGES;

/// One region, as a page's or a chunk's word names it; zero is empty, since what is named reaches at
/// least one page.
///
/// - page: `pages it reaches from here << 36 | what it lacks << 28 | region index`
/// - chunk: `pages it reaches from the chunk's start << 45 | where it starts << 36 | the same`
///
/// What is compared is at the top and everything below only adds, so "reaches far enough" is one
/// comparison; rights are stored inverted, so "has all rights" is one test. Reach saturates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(u64);

/// What a request asks of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(super) page: u64,
    pub(super) pages: u64,
    class: u64,
}

impl Want {
    /// Reached with [`FAST_PAGES_MAX`] pages at most; see [`Entry`].
    #[inline(always)]
    pub(crate) fn new(page: u64, pages: u64, class: u64) -> Self {
        Self { page, pages, class: class << INDEX_BITS }
    }

    #[inline(always)]
    fn offset(self) -> u64 {
        self.page % CHUNK_PAGES
    }
}

impl Entry {
    pub(super) const EMPTY: Self = Self(0);

    fn below_reach(span: Span, asked: bool) -> u64 {
        let class = if asked { span.class } else { span.class & !FAST };
        (!class & ((1 << CLASS_BITS) - 1)) << INDEX_BITS | u64::from(span.index)
    }

    /// What `span` says of `page`; `asked`: the page is known to be wanted.
    pub(super) fn new(span: Span, page: u64, asked: bool) -> Self {
        let reach = (span.range.end_page() - page).min(REACH_MAX);
        Self(reach << REACH_SHIFT | Self::below_reach(span, asked))
    }

    /// What `span` says of its part of `chunk`.
    pub(super) fn of_chunk(span: Span, chunk: u64, asked: bool) -> Self {
        let first = chunk * CHUNK_PAGES;
        let end = (span.range.end_page() - first).min(END_MAX);
        let start = span.range.first_page().saturating_sub(first);
        Self(end << END_SHIFT | start << REACH_SHIFT | Self::below_reach(span, asked))
    }

    /// Whether some request that `span` serves is longer than words can say.
    pub(super) fn saturates(span: Span) -> bool {
        span.range.pages() >= FAST_PAGES_MAX
    }

    #[inline(always)]
    pub(super) fn load(at: &AtomicU64) -> Self {
        Self(at.load(Ordering::Acquire))
    }

    #[inline(always)]
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn index(self) -> u32 {
        self.0 as u32 & ((1 << INDEX_BITS) - 1)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Of a page.
    pub(super) fn reach(self) -> u64 {
        self.0 >> REACH_SHIFT
    }

    /// Of a chunk: the page of the chunk from which, and to which from the chunk's start.
    pub(super) fn extent(self) -> (u64, u64) {
        (self.0 >> REACH_SHIFT & ((1 << START_BITS) - 1), self.0 >> END_SHIFT)
    }

    /// A chunk's word, as the word of one of its pages that it covers.
    pub(super) fn of_page(self, offset: u64) -> Self {
        let (_, end) = self.extent();
        Self((end - offset) << REACH_SHIFT | self.0 & ((1 << REACH_SHIFT) - 1))
    }

    pub(super) fn fast(self) -> bool {
        self.0 >> INDEX_BITS & FAST == 0
    }

    /// Of a page: whether it covers what is wanted from here and has all rights.
    #[inline(always)]
    pub(super) fn serves(self, want: Want) -> bool {
        self.0 >= want.pages << REACH_SHIFT && self.0 & want.class == 0
    }

    /// The same of a chunk.
    #[inline(always)]
    pub(super) fn chunk_serves(self, want: Want) -> bool {
        let starts = self.0 >> REACH_SHIFT & ((1 << START_BITS) - 1);
        let reaches = self.0 >= (want.offset() + want.pages) << END_SHIFT;
        reaches && starts <= want.offset() && self.0 & want.class == 0
    }
}

const _: () = assert!(CHUNK_PAGES <= 1 << START_BITS && END_MAX < REACH_MAX);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::PageRange;

    #[test]
    fn a_chunks_word_says_where_it_starts() {
        let span = Span { index: 9, range: PageRange::from_pages(515, 10).unwrap(), class: 3 | FAST };
        let entry = Entry::of_chunk(span, 1, true);
        let serves = |page, pages, class| entry.chunk_serves(Want::new(page, pages, class));
        assert!(serves(515, 10, 3 | FAST) && serves(524, 1, 1) && serves(517, 3, 0));
        assert!(!serves(514, 1, 0) && !serves(515, 11, 0) && !serves(525, 1, 0) && !serves(515, 1, 4));
        assert!(entry.of_page(5).serves(Want::new(517, 8, 3 | FAST)));
        assert!(!entry.of_page(5).serves(Want::new(517, 9, 3)));
        assert_eq!((entry.index(), entry.extent()), (9, (3, 13)));
        assert!(entry.fast() && !Entry::of_chunk(span, 1, false).fast());
    }
}
