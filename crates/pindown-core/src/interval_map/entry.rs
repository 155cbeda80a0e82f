//! [`Entry`]: what one word says about one page (or chunk).

use super::Span;
use crate::sync::{AtomicU64, Ordering};

/// Bits of an index.
pub(crate) const INDEX_BITS: u32 = 28;
const CLASS_BITS: u32 = 8;
const REACH_SHIFT: u32 = INDEX_BITS + CLASS_BITS;
const REACH_MAX: u64 = (1 << (64 - REACH_SHIFT)) - 1;

/// Regions that entries can name.
pub(crate) const MAX_REGIONS: u32 = 1 << 27;

/// Class bit: a lookup may use this entry without the slow path.
pub(crate) const FAST: u64 = 1 << 7;

/// `pages it reaches from here << 36 | class << 28 | region index`; zero is empty, since what is
/// named reaches at least one page. Reach saturates (at 1 TiB): longer requests take the slow path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(u64);

impl Entry {
    pub(super) const EMPTY: Self = Self(0);

    /// What `span` says of `page`; `asked`: the page is known to be wanted.
    pub(super) fn new(span: Span, page: u64, asked: bool) -> Self {
        let class = if asked { span.class } else { span.class & !FAST };
        let reach = (span.range.end_page() - page).min(REACH_MAX);
        Self(reach << REACH_SHIFT | class << INDEX_BITS | u64::from(span.index))
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

    #[inline(always)]
    pub(super) fn reach(self) -> u64 {
        self.0 >> REACH_SHIFT
    }

    pub(super) fn fast(self) -> bool {
        self.0 >> INDEX_BITS & FAST != 0
    }

    /// Whether it covers `pages` from here and has all rights of `class`.
    #[inline(always)]
    pub(super) fn serves(self, pages: u64, class: u64) -> bool {
        self.reach() >= pages && !(self.0 >> INDEX_BITS) & class == 0
    }
}
