//! [`PageTable`]: which frame is behind a page.

use std::collections::BTreeMap;

use crate::PageRange;

/// A software page table: virtual page number to frame number. A page gets a frame of its own when it is first
/// looked at, and a new one after a remap, so no two lives of a page have the same frame.
#[derive(Debug, Default)]
pub(super) struct PageTable {
    frames: BTreeMap<u64, u64>,
    last_frame: u64,
}

impl PageTable {
    pub(super) fn frame(&mut self, page: u64) -> u64 {
        *self.frames.entry(page).or_insert_with(|| {
            self.last_frame += 1;
            self.last_frame
        })
    }

    /// The frames of a whole range, as pinning finds them.
    pub(super) fn frames(&mut self, range: PageRange) -> Vec<u64> {
        (range.first_page()..range.end_page()).map(|page| self.frame(page)).collect()
    }

    /// Every page of the range gets another frame at the next look.
    pub(super) fn remap(&mut self, range: PageRange) {
        let mut rest = self.frames.split_off(&range.first_page());
        let mut above = rest.split_off(&range.end_page());
        self.frames.append(&mut above);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remap_changes_the_pages_of_the_range_and_no_other() {
        let mut table = PageTable::default();
        let all = PageRange::from_pages(10, 6).unwrap();
        let before = table.frames(all);
        assert_eq!(table.frames(all), before);
        table.remap(PageRange::from_pages(12, 2).unwrap());
        let after = table.frames(all);
        let changed: Vec<_> = before.iter().zip(&after).map(|(b, a)| b != a).collect();
        assert_eq!(changed, [false, false, true, true, false, false]);
        assert!(after.iter().all(|f| after.iter().filter(|g| f == *g).count() == 1));
    }
}
