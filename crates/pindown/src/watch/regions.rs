//! The registered regions, and what is to be reported of each.

use std::collections::{BTreeMap, HashMap};

use pindown_core::PageRange;

use super::Extent;

/// By cookie, and by start address so that a change finds those it overlaps.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    by_cookie: HashMap<u64, PageRange>,
    by_start: BTreeMap<(usize, u64), PageRange>,
    changed: BTreeMap<u64, Extent>,
    /// No region is longer: how far before a change one may start.
    longest_bytes: usize,
}

impl Regions {
    /// False: the cookie is in use.
    pub(crate) fn insert(&mut self, cookie: u64, range: PageRange) -> bool {
        if self.by_cookie.contains_key(&cookie) {
            return false;
        }
        self.by_cookie.insert(cookie, range);
        self.by_start.insert((range.start(), cookie), range);
        self.longest_bytes = self.longest_bytes.max(range.len_bytes());
        true
    }

    pub(crate) fn remove(&mut self, cookie: u64) -> Option<PageRange> {
        let range = self.by_cookie.remove(&cookie)?;
        self.by_start.remove(&(range.start(), cookie));
        self.changed.remove(&cookie);
        Some(range)
    }

    /// `change` happened: the regions that it overlaps are to be reported.
    pub(crate) fn mark(&mut self, change: PageRange) {
        let first = change.start().saturating_sub(self.longest_bytes);
        for ((_, cookie), range) in self.by_start.range((first, 0)..(change.end(), 0)) {
            let Some(common) = range.intersection(change) else { continue };
            let exact = if common == *range { Extent::Whole } else { Extent::Exact(common) };
            let entry = self.changed.entry(*cookie).or_insert(exact);
            if *entry != exact {
                *entry = Extent::Whole;
            }
        }
    }

    pub(crate) fn mark_all(&mut self) {
        self.changed.extend(self.by_cookie.keys().map(|cookie| (*cookie, Extent::Whole)));
    }

    /// Hands over what is to be reported, once.
    pub(crate) fn take(&mut self, mut found: impl FnMut(u64, Extent)) {
        std::mem::take(&mut self.changed).into_iter().for_each(|(cookie, extent)| found(cookie, extent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(first: u64, count: u64) -> PageRange {
        PageRange::from_pages(first, count).unwrap()
    }

    fn reported(regions: &mut Regions) -> Vec<(u64, Extent)> {
        let mut all = Vec::new();
        regions.take(|cookie, extent| all.push((cookie, extent)));
        all
    }

    #[test]
    fn one_change_is_exact_and_two_are_the_whole() {
        let mut r = Regions::default();
        assert!(r.insert(1, pages(10, 10)) && r.insert(2, pages(15, 100)) && r.insert(3, pages(300, 1)));
        assert!(!r.insert(1, pages(0, 1)));
        r.mark(pages(18, 4));
        assert_eq!(reported(&mut r), [(1, Extent::Exact(pages(18, 2))), (2, Extent::Exact(pages(18, 4)))]);
        assert!(reported(&mut r).is_empty(), "an event is reported once");
        r.mark(pages(16, 1));
        r.mark(pages(17, 1));
        assert_eq!(reported(&mut r), [(1, Extent::Whole), (2, Extent::Whole)]);
        r.mark(pages(0, 11));
        r.remove(1);
        assert!(reported(&mut r).is_empty(), "an unread event ends with its region");
        r.mark_all();
        assert_eq!(reported(&mut r).len(), 2);
    }

    #[test]
    fn a_long_region_that_starts_far_before_is_found() {
        let mut r = Regions::default();
        r.insert(1, pages(0, 100_000));
        assert!((2..1000).all(|c| r.insert(c, pages(c * 10, 1))));
        r.mark(pages(99_999, 1));
        assert_eq!(reported(&mut r), [(1, Extent::Exact(pages(99_999, 1)))]);
    }
}
