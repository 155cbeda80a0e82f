//! The pending set beside a set of pages.

use std::collections::BTreeSet;

use super::bytes::Bytes;
use crate::pending::{Pending, Taken};
use crate::{EventKind, PageRange};

/// Pushes and takes: what is taken is exactly what was pushed since, or everything.
pub fn pending(data: &[u8]) {
    let (mut bytes, set) = (Bytes::new(data), Pending::new());
    let (mut pushed, mut overflowed) = (BTreeSet::new(), false);
    while !bytes.is_empty() {
        match bytes.byte() % 16 {
            0 => check_taken(&set, &mut pushed, &mut overflowed),
            1 => {
                set.push_everything();
                overflowed = true;
            }
            2 => overflowed |= set.push(PageRange::everything(), EventKind::Manual),
            _ => {
                let (first, pages) = (bytes.below(4096), bytes.below(9) + 1);
                let range = PageRange::from_pages(first, pages).expect("low");
                overflowed |= set.push(range, EventKind::Unmap);
                pushed.extend(first..first + pages);
            }
        }
    }
    check_taken(&set, &mut pushed, &mut overflowed);
}

fn check_taken(set: &Pending, pushed: &mut BTreeSet<u64>, overflowed: &mut bool) {
    let (mut taken, mut everything) = (BTreeSet::new(), false);
    set.take(|t| match t {
        Taken::Range(range, _) => taken.extend(range.first_page()..range.end_page()),
        Taken::Everything => everything = true,
    });
    assert_eq!(everything, *overflowed, "everything is taken if and only if something overflowed");
    assert!(taken.is_subset(pushed), "what was not pushed was taken");
    assert!(everything || taken == *pushed, "what was pushed was not taken");
    pushed.clear();
    *overflowed = false;
}
