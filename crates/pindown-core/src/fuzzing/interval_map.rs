//! The interval map beside a list.

use super::bytes::Bytes;
use crate::interval_map::oracle::{Op, Oracle, new_map};

/// Inserts, removals, promotions and searches.
pub fn interval_map(data: &[u8]) {
    let (mut bytes, mut map, mut oracle) = (Bytes::new(data), new_map(), Oracle::default());
    while !bytes.is_empty() {
        let op = op(&mut bytes);
        oracle.apply(&mut map, &op);
    }
    for first in 0..60 {
        oracle.apply(&mut map, &Op::Find { first, pages: 3, class: 0 });
        oracle.apply(&mut map, &Op::Overlapping { first, pages: 1 });
    }
}

fn op(bytes: &mut Bytes<'_>) -> Op {
    let kind = bytes.byte();
    let (first, pages) = extent(bytes);
    match kind % 12 {
        0..4 => Op::Insert { first, pages, class: bytes.below(4) },
        4..6 => Op::Remove(bytes.below(256) as usize),
        6 => Op::Promote(bytes.below(256) as usize, first),
        7..10 => Op::Find { first, pages, class: bytes.below(4) },
        _ => Op::Overlapping { first, pages },
    }
}

/// Small addresses, so that ranges collide, with some that span chunks and GiBs.
fn extent(bytes: &mut Bytes<'_>) -> (u64, u64) {
    match bytes.below(12) {
        0 => (bytes.below(1500), 500 + bytes.below(2500)),
        1 => (262_000 + bytes.below(400), 1 + bytes.below(600)),
        2..4 => (480 + bytes.below(60), 1 + bytes.below(80)),
        _ => (bytes.below(40), 1 + bytes.below(12)),
    }
}
