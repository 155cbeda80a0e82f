//! The set of watched ranges.

use std::collections::BTreeMap;

use pindown::{PageRange, Stamp};

/// By start and end. Ranges may overlap.
#[derive(Debug, Default)]
pub(super) struct Watched {
    ranges: BTreeMap<(usize, usize), Entry>,
    /// No range is longer: how far before an address one that covers it may start.
    longest_bytes: usize,
    stamped: usize,
}

#[derive(Debug)]
struct Entry {
    range: PageRange,
    /// Engines with several caches register a range once in each.
    users: usize,
    stamp: Option<Stamp>,
}

impl Watched {
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// True: it was there, and has one user more. An older stamp stays, since the older users were
    /// registered under it.
    pub(super) fn insert(&mut self, range: PageRange, stamp: Option<Stamp>) -> bool {
        self.longest_bytes = self.longest_bytes.max(range.len_bytes());
        let old = self.remove(range);
        let users = old.as_ref().map_or(0, |e| e.users) + 1;
        let stamp = old.as_ref().and_then(|e| e.stamp).or(stamp);
        self.stamped += usize::from(stamp.is_some());
        self.ranges.insert((range.start(), range.end()), Entry { range, users, stamp });
        old.is_some()
    }

    /// True: that was the last user.
    pub(super) fn remove_one(&mut self, range: PageRange) -> bool {
        let Some(entry) = self.ranges.get_mut(&(range.start(), range.end())) else { return false };
        entry.users -= 1;
        entry.users == 0 && self.remove(range).is_some()
    }

    fn remove(&mut self, range: PageRange) -> Option<Entry> {
        let entry = self.ranges.remove(&(range.start(), range.end()))?;
        self.stamped -= usize::from(entry.stamp.is_some());
        Some(entry)
    }

    /// Whether one watched range has all of `range`.
    pub(super) fn covers(&self, range: PageRange) -> bool {
        self.overlapping(range).any(|e| e.range.start() <= range.start() && range.end() <= e.range.end())
    }

    /// What has to be checked before something in `range` is used.
    pub(super) fn stamps(&self, range: PageRange) -> Vec<(PageRange, Stamp)> {
        if self.stamped == 0 {
            return Vec::new();
        }
        self.overlapping(range).filter_map(|e| Some((e.range, e.stamp?))).collect()
    }

    /// Removes what overlaps `change`.
    pub(super) fn take(&mut self, change: PageRange) -> Vec<PageRange> {
        let taken: Vec<_> = self.overlapping(change).map(|e| e.range).collect();
        taken.iter().for_each(|range| _ = self.remove(*range));
        taken
    }

    fn overlapping(&self, range: PageRange) -> impl Iterator<Item = &Entry> {
        let first = range.start().saturating_sub(self.longest_bytes);
        let near = self.ranges.range((first, 0)..(range.end(), 0));
        near.map(|(_, e)| e).filter(move |e| e.range.overlaps(range))
    }
}
