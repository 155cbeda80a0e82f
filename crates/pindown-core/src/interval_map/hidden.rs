//! [`Hidden`]: regions that some entry does not name although they cover its page.

use std::collections::BTreeMap;

use super::Span;
use crate::PageRange;

/// One ordered set a power of two of length, so that a search looks back at most twice the length
/// of what it can find, however long the longest region is.
#[derive(Debug)]
pub(super) struct Hidden {
    classes: [BTreeMap<(u64, u32), Kept>; 40],
    len: usize,
    /// Regions displaced since the last `take_noted`.
    noted: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    end_page: u64,
    class: u64,
}

fn size_class(pages: u64) -> usize {
    pages.ilog2() as usize
}

impl Default for Hidden {
    fn default() -> Self {
        Self { classes: std::array::from_fn(|_| BTreeMap::new()), len: 0, noted: Vec::new() }
    }
}

impl Hidden {
    pub(super) fn insert(&mut self, span: Span) {
        let kept = Kept { end_page: span.range.end_page(), class: span.class };
        let key = (span.range.first_page(), span.index);
        let new = self.classes[size_class(span.range.pages())].insert(key, kept).is_none();
        self.len += usize::from(new);
    }

    pub(super) fn remove(&mut self, span: Span) {
        let key = (span.range.first_page(), span.index);
        let was = self.len > 0 && self.classes[size_class(span.range.pages())].remove(&key).is_some();
        self.len -= usize::from(was);
    }

    /// `index` lost an entry.
    pub(super) fn note(&mut self, index: u32) {
        if self.noted.last() != Some(&index) {
            self.noted.push(index);
        }
    }

    pub(super) fn take_noted(&mut self) -> Vec<u32> {
        if self.noted.is_empty() {
            return Vec::new();
        }
        self.noted.sort_unstable();
        self.noted.dedup();
        std::mem::take(&mut self.noted)
    }

    pub(super) fn overlapping(&self, range: PageRange, found: &mut impl FnMut(u32)) {
        self.each(range.first_page(), range.end_page(), |index, _, kept| {
            if kept.end_page > range.first_page() {
                found(index);
            }
            false
        });
    }

    pub(super) fn find(&self, range: PageRange, class: u64) -> Option<u32> {
        let mut hit = None;
        self.each(range.first_page(), range.first_page() + 1, |index, _, kept| {
            let serves = kept.end_page >= range.end_page() && !kept.class & class == 0;
            if serves {
                hit = Some(index);
            }
            serves
        });
        hit
    }

    /// Candidates that start before `end` and are long enough to reach `first`; until `f` is true.
    fn each(&self, first: u64, end: u64, mut f: impl FnMut(u32, u64, Kept) -> bool) {
        if self.len == 0 {
            return;
        }
        for (size, class) in self.classes.iter().enumerate().filter(|(_, c)| !c.is_empty()) {
            let from = first.saturating_sub(2 << size);
            for (&(start, index), &kept) in class.range((from, 0)..(end, 0)).rev() {
                if f(index, start, kept) {
                    return;
                }
            }
        }
    }
}
