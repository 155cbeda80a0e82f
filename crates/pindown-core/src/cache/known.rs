//! [`Known`]: which memory was asked for before.

use crate::PageRange;
use crate::eviction::mix;

/// Entries, 16 bytes each: none before the first use, then so many, doubled while too many are forgotten.
const FIRST: usize = 128;
const MOST: usize = 4096;

/// Ranges and how often they were asked for while they were not registered. Direct-mapped, so a
/// collision forgets the older.
#[derive(Debug, Default)]
pub(crate) struct Known {
    entries: Vec<Entry>,
    forgotten: usize,
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

    fn at(&self, key: u64) -> usize {
        (key >> 1) as usize & (self.entries.len() - 1)
    }

    fn entry(&mut self, range: PageRange) -> &mut Entry {
        if self.entries.is_empty() || self.forgotten * 2 > self.entries.len() {
            self.grow();
        }
        let key = Self::key(range);
        let at = self.at(key);
        if self.entries[at].key != key {
            self.forgotten += usize::from(self.entries[at].key != 0);
            self.entries[at] = Entry { key, ..Entry::default() };
        }
        &mut self.entries[at]
    }

    fn grow(&mut self) {
        self.forgotten = 0;
        let size = (self.entries.len() * 2).clamp(FIRST, MOST);
        if size == self.entries.len() {
            return;
        }
        let old = std::mem::replace(&mut self.entries, vec![Entry::default(); size]);
        for entry in old.into_iter().filter(|e| e.key != 0) {
            let at = self.at(entry.key);
            self.entries[at] = entry;
        }
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
        let ranges: Vec<_> = (1..1000).map(|n| PageRange::from_pages(n * 7, n).unwrap()).collect();
        // Entries are lost while it grows to the size that so many need.
        let counts: Vec<u32> =
            (0..32).flat_map(|_| ranges.iter().map(|r| known.asked(*r)).collect::<Vec<_>>()).collect();
        let often = counts[31 * ranges.len()..].iter().filter(|n| **n >= 4).count();
        assert!(often > 700, "{often}");
        assert!((1024..=MOST).contains(&known.entries.len()), "grown: {}", known.entries.len());
        assert!(!known.registered(ranges[0]));
        assert!(known.registered(ranges[0]));
        known.forget(ranges[0]);
        assert_eq!((known.registered(ranges[0]), known.asked(ranges[0])), (false, 1));
    }
}
