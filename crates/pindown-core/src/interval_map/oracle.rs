//! The map beside a plain list, for tests and fuzzing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{FAST, IntervalMap, Span, Table};
use crate::{PageRange, PlainHost};

pub(crate) fn new_map() -> IntervalMap {
    IntervalMap::new(Arc::new(Table::new(Arc::new(PlainHost::default()))))
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Insert { first: u64, pages: u64, class: u64 },
    Remove(usize),
    Promote(usize, u64),
    Find { first: u64, pages: u64, class: u64 },
    Overlapping { first: u64, pages: u64 },
}

/// The map beside a plain list.
#[derive(Default)]
pub(crate) struct Oracle {
    spans: BTreeMap<u32, Span>,
    next: u32,
}

impl Oracle {
    fn nth(&self, n: usize) -> Option<Span> {
        self.spans.values().nth(n % self.spans.len().max(1)).copied()
    }

    pub(crate) fn apply(&mut self, map: &mut IntervalMap, op: &Op) {
        match *op {
            Op::Insert { first, pages, class } => self.insert(map, first, pages, class),
            Op::Remove(n) => {
                if let Some(span) = self.nth(n) {
                    map.remove(span);
                    self.spans.remove(&span.index);
                }
            }
            Op::Promote(n, at) => {
                if let Some(span) = self.nth(n) {
                    map.promote(span, span.range.first_page() + at % span.range.pages());
                    self.hide_displaced(map);
                }
            }
            Op::Find { first, pages, class } => self.check_find(map, range(first, pages), class),
            Op::Overlapping { first, pages } => self.check_overlapping(map, range(first, pages)),
        }
    }

    fn insert(&mut self, map: &mut IntervalMap, first: u64, pages: u64, class: u64) {
        self.next += 1;
        let span = Span { index: self.next, range: range(first, pages), class: class | FAST };
        let half = range(first, pages.div_ceil(2));
        map.insert(span, half);
        self.spans.insert(span.index, span);
        self.hide_displaced(map);
    }

    fn hide_displaced(&self, map: &mut IntervalMap) {
        for index in map.take_displaced() {
            map.hide(self.spans[&index]);
        }
    }

    pub(crate) fn check_find(&self, map: &IntervalMap, wanted: PageRange, class: u64) {
        let serves = |s: &Span| s.range.contains(wanted) && !s.class & class == 0;
        match map.find(wanted, class) {
            Some(index) => assert!(serves(&self.spans[&index]), "{index} does not serve {wanted:?}"),
            None => assert!(!self.spans.values().any(serves), "{wanted:?} {class} is covered"),
        }
        if let Some(found) = map.table.find(wanted.first_page(), wanted.pages(), class | FAST) {
            assert!(serves(&self.spans[&found.entry.index()]), "fast path");
        }
    }

    pub(crate) fn check_overlapping(&self, map: &IntervalMap, wanted: PageRange) {
        let mut found = BTreeSet::new();
        map.overlapping(wanted, |index| {
            found.insert(index);
        });
        let right: BTreeSet<u32> =
            self.spans.values().filter(|s| s.range.overlaps(wanted)).map(|s| s.index).collect();
        // A chunk's own entry is reported for any page of the chunk, and covers it all.
        assert_eq!(found, right);
    }
}

pub(crate) fn range(first: u64, pages: u64) -> PageRange {
    PageRange::from_pages(first, pages).unwrap()
}
