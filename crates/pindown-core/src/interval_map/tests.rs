use super::oracle::{Op, Oracle, new_map, range};
use super::*;
use proptest::prelude::*;

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

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_a_list(ops in prop::collection::vec(op(), 1..120)) {
        let (mut map, mut oracle) = (new_map(), Oracle::default());
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
    let mut map = new_map();
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
