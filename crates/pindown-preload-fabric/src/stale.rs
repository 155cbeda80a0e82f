//! [`Stale`]: what changed and may still be in one of libfabric's caches.

use pindown::PageRange;

/// Longer lists are taken for everything.
const MOST: usize = 1024;

/// Each range stays until libfabric was notified of it: until then nothing that overlaps it is valid, in
/// none of its caches (one a domain). Later changes of the same range are entries of their own.
#[derive(Debug, Default)]
pub(crate) struct Stale {
    ranges: Vec<(u64, PageRange)>,
    next: u64,
}

impl Stale {
    pub(crate) fn add(&mut self, range: PageRange) {
        if self.ranges.len() >= MOST {
            self.ranges.clear();
            return self.push(PageRange::everything());
        }
        self.push(range);
    }

    fn push(&mut self, range: PageRange) {
        self.ranges.push((self.next, range));
        self.next += 1;
    }

    pub(crate) fn overlaps(&self, range: PageRange) -> bool {
        self.ranges.iter().any(|(_, stale)| stale.overlaps(range))
    }

    /// What is to be notified, with a mark for [`notified`](Self::notified).
    pub(crate) fn pending(&self) -> (u64, Vec<PageRange>) {
        (self.next, self.ranges.iter().map(|r| r.1).collect())
    }

    /// All that was pending at `mark` is in no cache any more.
    pub(crate) fn notified(&mut self, mark: u64) {
        self.ranges.retain(|(id, _)| *id >= mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(first: u64, count: u64) -> PageRange {
        PageRange::from_pages(first, count).unwrap()
    }

    #[test]
    fn a_change_during_the_notification_stays() {
        let mut stale = Stale::default();
        stale.add(pages(10, 10));
        let (mark, pending) = stale.pending();
        assert_eq!(pending, [pages(10, 10)]);
        stale.add(pages(10, 1));
        stale.notified(mark);
        assert!(stale.overlaps(pages(10, 1)) && !stale.overlaps(pages(11, 1)));
        stale.notified(stale.pending().0);
        assert!(!stale.overlaps(PageRange::everything()));
    }

    #[test]
    fn too_much_is_everything() {
        let mut stale = Stale::default();
        (0..=MOST as u64).for_each(|i| stale.add(pages(2 * i, 1)));
        assert!(stale.overlaps(pages(1, 1)) && stale.pending().1.len() == 1);
    }
}
