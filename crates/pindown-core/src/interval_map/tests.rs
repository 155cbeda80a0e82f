use super::*;
use crate::PlainHost;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn map() -> IntervalMap {
    IntervalMap::new(Arc::new(Table::new(Arc::new(PlainHost::default()))))
}

#[derive(Clone, Debug)]
enum Op {
    Insert { first: u64, pages: u64, class: u64 },
    Remove(usize),
    Promote(usize, u64),
    Find { first: u64, pages: u64, class: u64 },
    Overlapping { first: u64, pages: u64 },
}

/// Small addresses, so that ranges collide, with some that span chunks and GiBs.
fn extent() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![
        8 => (0..40u64, 1..12u64),
        2 => (480..540u64, 1..80u64),
        1 => (0..1500u64, 500..3000u64),
        1 => (262_000..262_400u64, 1..600u64),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (extent(), 0..4u64).prop_map(|((first, pages), class)| Op::Insert { first, pages, class }),
        2 => any::<prop::sample::Index>().prop_map(|i| Op::Remove(i.index(1 << 16))),
        1 => (any::<prop::sample::Index>(), 0..3000u64).prop_map(|(i, p)| Op::Promote(i.index(1 << 16), p)),
        4 => (extent(), 0..4u64).prop_map(|((first, pages), class)| Op::Find { first, pages, class }),
        2 => extent().prop_map(|(first, pages)| Op::Overlapping { first, pages }),
    ]
}

/// The map beside a plain list.
#[derive(Default)]
struct Oracle {
    spans: BTreeMap<u32, Span>,
    next: u32,
}

impl Oracle {
    fn nth(&self, n: usize) -> Option<Span> {
        self.spans.values().nth(n % self.spans.len().max(1)).copied()
    }

    fn apply(&mut self, map: &mut IntervalMap, op: &Op) {
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

    fn check_find(&self, map: &IntervalMap, wanted: PageRange, class: u64) {
        let serves = |s: &Span| s.range.contains(wanted) && !s.class & class == 0;
        match map.find(wanted, class) {
            Some(index) => assert!(serves(&self.spans[&index]), "{index} does not serve {wanted:?}"),
            None => assert!(!self.spans.values().any(serves), "{wanted:?} {class} is covered"),
        }
        if let Some(found) = map.table.find(wanted.first_page(), wanted.pages(), class | FAST) {
            assert!(serves(&self.spans[&found.entry.index()]), "fast path");
        }
    }

    fn check_overlapping(&self, map: &IntervalMap, wanted: PageRange) {
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

fn range(first: u64, pages: u64) -> PageRange {
    PageRange::from_pages(first, pages).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_a_list(ops in prop::collection::vec(op(), 1..120)) {
        let (mut map, mut oracle) = (map(), Oracle::default());
        for op in &ops {
            oracle.apply(&mut map, op);
        }
        for first in 0..60 {
            oracle.check_find(&map, range(first, 3), 0);
            oracle.check_overlapping(&map, range(first, 1));
        }
    }
}

#[test]
fn a_gibibyte_is_entered_by_chunk() {
    let mut map = map();
    let span = Span { index: 1, range: range(100, 262_144), class: FAST };
    map.insert(span, span.range);
    assert_eq!(map.find(range(200_000, 1000), FAST), Some(1));
    assert!(map.table.find(200_000, 1000, FAST).is_some());
    assert_eq!(map.find(range(200_000, 262_144), FAST), None);
    map.remove(span);
    assert_eq!(map.find(range(200_000, 1), FAST), None);
    let mut n = 0;
    map.overlapping(PageRange::everything(), |_| n += 1);
    assert_eq!(n, 0);
}
