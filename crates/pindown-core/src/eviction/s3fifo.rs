//! S3-FIFO (Yang et al., SOSP 2023): plain, and a scan passes through without harm.

use std::collections::VecDeque;

use super::ghosts::Ghosts;
use super::{EvictionPolicy, Inserted, Removal, UseWord, Uses};

/// Two queues: what is new waits in the small one (a tenth), and goes to the main one only if it was
/// used again; what was dropped unused is remembered and enters the main one when it comes back.
#[derive(Debug, Default)]
pub struct S3Fifo {
    small: VecDeque<Entry>,
    main: VecDeque<Entry>,
    slots: Vec<Slot>,
    ghosts: Ghosts,
    last_birth: u32,
    live: usize,
    live_small: usize,
}

/// An entry is used again if its word moved past `seen`.
#[derive(Clone, Copy, Debug)]
struct Entry {
    region: u32,
    birth: u32,
    seen: u64,
}

/// `birth` zero: not in.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    birth: u32,
    in_main: bool,
    id: u64,
}

impl S3Fifo {
    fn is_live(&self, e: Entry, in_main: bool) -> bool {
        self.slots.get(e.region as usize).is_some_and(|s| s.birth == e.birth && s.in_main == in_main)
    }

    fn compact(&mut self) {
        if self.small.len() + self.main.len() > 2 * self.live + 64 {
            let slots = &self.slots;
            let of = |e: &Entry| slots.get(e.region as usize).filter(|s| s.birth == e.birth);
            self.small.retain(|e| of(e).is_some_and(|s| !s.in_main));
            self.main.retain(|e| of(e).is_some_and(|s| s.in_main));
        }
    }

    fn promote(&mut self, entry: Entry, seen: u64) {
        self.slots[entry.region as usize].in_main = true;
        self.live_small -= 1;
        self.main.push_back(Entry { seen, ..entry });
    }

    /// One step at the small queue's head.
    fn take_small(&mut self, uses: &dyn Uses) -> Option<u32> {
        let entry = self.small.pop_front()?;
        if !self.is_live(entry, false) {
            return None;
        }
        let stamp = uses.word(entry.region).stamp();
        if stamp > entry.seen {
            self.promote(entry, stamp);
            return None;
        }
        if uses.held(entry.region) {
            self.small.push_back(entry);
            return None;
        }
        self.small.push_front(entry);
        Some(entry.region)
    }

    /// One step at the main queue's head.
    fn take_main(&mut self, uses: &dyn Uses) -> Option<u32> {
        let entry = self.main.pop_front()?;
        if !self.is_live(entry, true) {
            return None;
        }
        let stamp = uses.word(entry.region).stamp();
        if stamp > entry.seen || uses.held(entry.region) {
            self.main.push_back(Entry { seen: stamp, ..entry });
            return None;
        }
        self.main.push_front(entry);
        Some(entry.region)
    }
}

impl EvictionPolicy for S3Fifo {
    fn name(&self) -> &'static str {
        "s3fifo"
    }

    fn inserted(&mut self, new: Inserted, now: u64) {
        let at = new.region as usize;
        self.removed(new.region, new.id, UseWord::default(), Removal::Invalidated);
        self.slots.resize(self.slots.len().max(at + 1), Slot::default());
        self.last_birth = self.last_birth.wrapping_add(1).max(1);
        let in_main = self.ghosts.take(new.id).is_some();
        self.slots[at] = Slot { birth: self.last_birth, in_main, id: new.id };
        self.live += 1;
        self.live_small += usize::from(!in_main);
        let entry = Entry { region: new.region, birth: self.last_birth, seen: now };
        if in_main { &mut self.main } else { &mut self.small }.push_back(entry);
        self.compact();
    }

    fn removed(&mut self, region: u32, _id: u64, last: UseWord, why: Removal) {
        let Some(slot) = self.slots.get_mut(region as usize).filter(|s| s.birth != 0) else { return };
        slot.birth = 0;
        self.live -= 1;
        self.live_small -= usize::from(!slot.in_main);
        if why == Removal::Evicted && !slot.in_main {
            self.ghosts.reserve(self.live);
            self.ghosts.put(slot.id, last);
        }
    }

    fn victim(&mut self, uses: &dyn Uses) -> Option<u32> {
        // Each step moves an entry to the back or out, and what is moved is not moved again unless
        // it is used meanwhile: two rounds see everything.
        for _ in 0..2 * (self.small.len() + self.main.len()) + 2 {
            let use_small = self.live_small * 10 > self.live || self.live_small == self.live;
            let found = if use_small { self.take_small(uses) } else { self.take_main(uses) };
            if found.is_some() {
                return found;
            }
        }
        // All of the queue whose turn it is are held: take from the other.
        (0..self.small.len())
            .find_map(|_| self.take_small(uses))
            .or_else(|| (0..self.main.len()).find_map(|_| self.take_main(uses)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Table;
    use super::*;

    #[test]
    fn a_scan_does_not_push_out_what_is_used() {
        let (mut policy, mut table) = (S3Fifo::default(), Table::default());
        (0..100).for_each(|r| table.insert(&mut policy, r));
        (0..100).for_each(|r| table.hit(r));
        for region in 100..1000 {
            let gone = table.evict(&mut policy).unwrap();
            assert!(region < 112 || gone >= 100, "{gone} went for {region}");
            table.insert(&mut policy, region);
        }
    }

    #[test]
    fn what_comes_back_soon_enters_the_main_queue() {
        let (mut policy, mut table) = (S3Fifo::default(), Table::default());
        (0..10).for_each(|r| table.insert(&mut policy, r));
        let gone = table.evict(&mut policy).unwrap();
        table.insert(&mut policy, gone);
        assert!(policy.slots[gone as usize].in_main);
    }
}
