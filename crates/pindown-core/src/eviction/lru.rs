//! Least recently used, by a heap that is put right only when asked.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{EvictionPolicy, Inserted, Removal, UseWord, Uses};

/// How many outdated entries one call puts right before it takes the oldest it saw: bounds the time
/// under the lock after a long run of hits.
const MAX_REQUEUED: usize = 256;

/// The least recently used goes first.
///
/// Hits do not move anything: an entry's place is from its last visit here, and it is put back by
/// its present stamp when it comes up.
#[derive(Debug, Default)]
pub struct Lru {
    heap: BinaryHeap<Reverse<Entry>>,
    /// By region: which entry is its own; zero: it is not in.
    births: Vec<u32>,
    last_birth: u32,
    live: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    stamp: u64,
    region: u32,
    birth: u32,
}

impl Lru {
    fn is_live(&self, entry: Entry) -> bool {
        self.births.get(entry.region as usize) == Some(&entry.birth)
    }

    /// Entries of removed regions stay until they come up; no more than half may be such.
    fn compact(&mut self) {
        if self.heap.len() > 2 * self.live + 64 {
            let births = &self.births;
            self.heap.retain(|Reverse(e)| births.get(e.region as usize) == Some(&e.birth));
        }
    }
}

impl EvictionPolicy for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }

    fn inserted(&mut self, new: Inserted, now: u64) {
        let at = new.region as usize;
        self.births.resize(self.births.len().max(at + 1), 0);
        self.last_birth = self.last_birth.wrapping_add(1).max(1);
        self.live += usize::from(self.births[at] == 0);
        self.births[at] = self.last_birth;
        self.heap.push(Reverse(Entry { stamp: now, region: new.region, birth: self.last_birth }));
        self.compact();
    }

    fn removed(&mut self, region: u32, _id: u64, _last: UseWord, _why: Removal) {
        if let Some(birth) = self.births.get_mut(region as usize) {
            self.live -= usize::from(*birth != 0);
            *birth = 0;
        }
    }

    fn victim(&mut self, uses: &dyn Uses) -> Option<u32> {
        let mut held = Vec::new();
        let mut oldest: Option<Entry> = None;
        let mut requeued = 0;
        while let Some(Reverse(entry)) = self.heap.pop() {
            if !self.is_live(entry) {
                continue;
            }
            if uses.held(entry.region) {
                held.push(entry);
                continue;
            }
            let present = Entry { stamp: uses.word(entry.region).stamp(), ..entry };
            self.heap.push(Reverse(present));
            oldest = Some(oldest.map_or(present, |o| o.min(present)));
            requeued += 1;
            if present.stamp <= entry.stamp || requeued == MAX_REQUEUED {
                break;
            }
        }
        self.heap.extend(held.into_iter().map(Reverse));
        oldest.map(|entry| entry.region)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Table;
    use super::*;

    #[test]
    fn evicts_by_last_use_not_by_insertion() {
        let (mut lru, mut table) = (Lru::default(), Table::default());
        (0..4).for_each(|r| table.insert(&mut lru, r));
        [0, 2, 1].into_iter().for_each(|r| table.hit(r));
        let order: Vec<_> = std::iter::from_fn(|| table.evict(&mut lru)).collect();
        assert_eq!(order, [3, 0, 2, 1]);
    }

    #[test]
    fn a_call_after_many_hits_is_bounded_and_still_takes_an_old_one() {
        let (mut lru, mut table) = (Lru::default(), Table::default());
        (0..10_000).for_each(|r| table.insert(&mut lru, r));
        (0..10_000).rev().for_each(|r| table.hit(r));
        let victim = table.evict(&mut lru).unwrap();
        assert_eq!(victim, MAX_REQUEUED as u32 - 1, "the oldest of those looked at");
    }

    #[test]
    fn removed_entries_do_not_pile_up() {
        let (mut lru, mut table) = (Lru::default(), Table::default());
        for _ in 0..10_000 {
            table.insert(&mut lru, 1);
            lru.removed(1, 2, table.words[1], Removal::Invalidated);
        }
        assert!(lru.heap.len() < 100, "{}", lru.heap.len());
    }
}
