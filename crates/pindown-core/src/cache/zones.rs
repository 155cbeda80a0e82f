//! [`Zones`]: how far registrations may be widened.
//!
//! Registered bytes stay at most twice the distinct requested bytes. Regions that stand alone are
//! registered exactly, so the rule need only be watched where regions touch: there, in *zones*, the
//! requested pages are kept as a set, and what is registered as a sum. A widened region's pages
//! that nobody has asked for yet are entered so that the first lookup takes the slow path and adds
//! them to the set: the set is exact, and later hits are fast.

use std::collections::BTreeMap;

use crate::PageRange;

/// Requested pages and registered pages, where regions touch.
#[derive(Debug, Default)]
pub(crate) struct Zones {
    /// Disjoint, non-touching: first page to end page.
    requested: BTreeMap<u64, u64>,
    requested_pages: u64,
    registered_pages: u64,
}

impl Zones {
    /// `range` was requested.
    pub(crate) fn request(&mut self, range: PageRange) {
        let (mut first, mut end) = (range.first_page(), range.end_page());
        while let Some((&s, &e)) = self.requested.range(..=end).next_back().filter(|(_, e)| **e >= first) {
            if s <= first && e >= end {
                return;
            }
            self.requested.remove(&s);
            self.requested_pages -= e - s;
            (first, end) = (first.min(s), end.max(e));
        }
        self.requested.insert(first, end);
        self.requested_pages += end - first;
    }

    /// The memory of `range` is gone.
    pub(crate) fn forget(&mut self, range: PageRange) {
        if self.requested.is_empty() {
            return;
        }
        let (first, end) = (range.first_page(), range.end_page());
        while let Some((&s, &e)) = self.requested.range(..end).next_back().filter(|(_, e)| **e > first) {
            self.requested.remove(&s);
            self.requested_pages -= e - s;
            for (s, e) in [(s, first), (end, e)] {
                if s < e {
                    self.requested.insert(s, e);
                    self.requested_pages += e - s;
                }
            }
        }
    }

    /// Whether any page of `range`, or one beside it, is known to have been requested here.
    pub(crate) fn is_requested_near(&self, range: PageRange) -> bool {
        let before = self.requested.range(..=range.end_page()).next_back();
        before.is_some_and(|(_, e)| *e >= range.first_page())
    }

    pub(crate) fn register(&mut self, pages: u64) {
        self.registered_pages += pages;
    }

    pub(crate) fn deregister(&mut self, pages: u64) {
        self.registered_pages -= pages;
    }

    /// Pages that may be registered now.
    pub(crate) fn room(&self) -> u64 {
        (2 * self.requested_pages).saturating_sub(self.registered_pages)
    }
}

/// Where a widened registration of `request` lies: `pages` long inside `limit`, away from the
/// neighbour that was there first.
pub(crate) fn widened(request: PageRange, pages: u64, limit: PageRange, forward: bool) -> PageRange {
    let more = (pages.saturating_sub(request.pages()) as usize) << crate::PAGE_SHIFT;
    let (start, end) = if forward {
        (request.start(), request.end().saturating_add(more).min(limit.end()))
    } else {
        (request.start().saturating_sub(more).max(limit.start()), request.end())
    };
    PageRange::new(start.min(request.start()), end.max(request.end())).unwrap_or(request)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn counts_as_a_set_of_pages_does(ops in prop::collection::vec((any::<bool>(), 0..60u64, 1..20u64), 1..60)) {
            let (mut zones, mut set) = (Zones::default(), BTreeSet::new());
            for (add, first, pages) in ops {
                let range = PageRange::from_pages(first, pages).unwrap();
                if add {
                    zones.request(range);
                    set.extend(first..first + pages);
                } else {
                    zones.forget(range);
                    set.retain(|p| *p < first || *p >= first + pages);
                }
                prop_assert_eq!(zones.requested_pages, set.len() as u64);
                prop_assert_eq!(zones.room(), 2 * set.len() as u64);
            }
        }
    }
}
