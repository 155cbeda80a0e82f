//! [`Known`]: which memory was asked for before.

use crate::PageRange;
use crate::eviction::mix;

/// Entries, 16 bytes each; made at the first use.
const ENTRIES: usize = 4096;

/// Ranges and how often they were asked for while they were not registered. Direct-mapped, so a
/// collision forgets the older.
#[derive(Debug, Default)]
pub(crate) struct Known {
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Zero: empty.
    key: u64,
    asked: u32,
    was_registered: bool,
}

impl Known {
    fn key(range: PageRange) -> u64 {
        mix(range.first_page() ^ mix(range.pages())) | 1
    }

    fn entry(&mut self, range: PageRange) -> &mut Entry {
        if self.entries.is_empty() {
            self.entries = vec![Entry::default(); ENTRIES];
        }
        let key = Self::key(range);
        let entry = &mut self.entries[(key >> 1) as usize % ENTRIES];
        if entry.key != key {
            *entry = Entry { key, ..Entry::default() };
        }
        entry
    }

    /// It was asked for once more; how often that makes.
    pub(crate) fn asked(&mut self, range: PageRange) -> u32 {
        let entry = self.entry(range);
        entry.asked = entry.asked.saturating_add(1);
        entry.asked
    }

    /// It is being registered. Returns whether it was before, so that its pages are there already.
    pub(crate) fn registered(&mut self, range: PageRange) -> bool {
        std::mem::replace(&mut self.entry(range).was_registered, true)
    }

    /// Its memory changed: what is there now is new.
    pub(crate) fn forget(&mut self, range: PageRange) {
        if !self.entries.is_empty() {
            *self.entry(range) = Entry::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_forgets_what_changed() {
        let mut known = Known::default();
        let ranges: Vec<_> = (1..100).map(|n| PageRange::from_pages(n * 7, n).unwrap()).collect();
        for round in 1..=3 {
            let counted = ranges.iter().filter(|r| known.asked(**r) == round).count();
            assert!(counted > 90, "{counted}");
        }
        assert!(!known.registered(ranges[0]));
        assert!(known.registered(ranges[0]));
        known.forget(ranges[0]);
        assert_eq!((known.registered(ranges[0]), known.asked(ranges[0])), (false, 1));
    }
}
