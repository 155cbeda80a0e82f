//! [`Shadow`]: what each ranking would have cost, simulated on a sample of the ids.

use std::collections::HashMap;

use super::clock::{is_sampled, mix};
use super::rule::{Candidate, Rule};

/// How many entries an eviction looks at.
const CANDIDATES: usize = 8;
const RULES: usize = Rule::ALL.len();
const OUT: u32 = u32::MAX;

/// One sampled id. Its uses do not depend on who caches it, so the simulations share them.
#[derive(Clone, Copy, Debug)]
struct Seen {
    id: u64,
    last: u64,
    interval: Option<u64>,
    pages: u64,
    cost_ns: u64,
    /// By rule: its place in that rule's cache, and its number there.
    place: [u32; RULES],
    born: [u64; RULES],
}

/// One simulated cache for each rule, of `1 / 2^shift` of the room.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    ids: HashMap<u64, u32>,
    seen: Vec<Seen>,
    caches: [Simulated; RULES],
    hand: usize,
    accesses: u64,
    draws: u64,
}

#[derive(Debug, Default)]
struct Simulated {
    members: Vec<u32>,
    pages: u64,
    born: u64,
    cost: f64,
}

/// The room that each simulated cache has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) regions: u64,
    pub(super) pages: u64,
    /// Registrations are short, not bytes.
    pub(super) by_regions: bool,
}

impl Shadow {
    /// Keeps only the ids that are sampled at this rate.
    pub(super) fn thin(&mut self, shift: u32) {
        for at in (0..self.seen.len()).rev() {
            let id = self.seen[at].id;
            if !is_sampled(id, shift) {
                (0..RULES).for_each(|rule| self.drop_from(rule, at as u32));
                self.ids.remove(&id);
                self.seen.swap_remove(at);
                self.moved(at);
            }
        }
    }

    /// The last id took slot `at`.
    fn moved(&mut self, at: usize) {
        let Some(seen) = self.seen.get(at) else { return };
        self.ids.insert(seen.id, at as u32);
        for rule in 0..RULES {
            if seen.place[rule] != OUT {
                self.caches[rule].members[seen.place[rule] as usize] = at as u32;
            }
        }
    }

    /// Memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        // A hash table's slot has a control byte and is one of eight that are not in use.
        let slot = (size_of::<(u64, u32)>() + 1) * 8 / 7;
        let members: usize = self.caches.iter().map(|c| c.members.capacity() * size_of::<u32>()).sum();
        self.seen.capacity() * size_of::<Seen>() + self.ids.capacity() * slot + members
    }

    /// A request for `id`, whose size and price are known when it was just registered.
    pub(super) fn access(&mut self, id: u64, new: Option<(u64, u64)>, now: u64, room: Room) {
        let Some(at) = self.find(id, new, now, room) else { return };
        self.accesses += 1;
        for rule in 0..RULES {
            if self.seen[at as usize].place[rule] == OUT {
                self.caches[rule].cost += self.seen[at as usize].cost_ns as f64;
                self.admit(rule, at);
                self.shrink(rule, at, now, room);
            }
        }
        let half_life = room.regions.clamp(16, 1 << 20) * 8;
        if self.accesses.is_multiple_of(half_life) {
            self.caches.iter_mut().for_each(|c| c.cost /= 2.0);
        }
    }

    /// Memory of this id is gone.
    pub(super) fn forget(&mut self, id: u64) {
        if let Some(&at) = self.ids.get(&id) {
            (0..RULES).for_each(|rule| self.drop_from(rule, at));
            self.seen[at as usize].interval = None;
        }
    }

    /// What each rule's misses cost lately.
    pub(super) fn costs(&self) -> [f64; RULES] {
        self.caches.each_ref().map(|c| c.cost)
    }

    fn find(&mut self, id: u64, new: Option<(u64, u64)>, now: u64, room: Room) -> Option<u32> {
        if let Some(&at) = self.ids.get(&id) {
            let seen = &mut self.seen[at as usize];
            seen.interval = Some((now - seen.last).max(1));
            seen.last = now;
            return Some(at);
        }
        let (pages, cost_ns) = new?;
        let fresh =
            Seen { id, last: now, interval: None, pages, cost_ns, place: [OUT; RULES], born: [0; RULES] };
        let at = self.slot(room);
        match self.seen.get_mut(at as usize) {
            Some(old) => {
                self.ids.remove(&old.id);
                *old = fresh;
            }
            None => self.seen.push(fresh),
        }
        self.ids.insert(id, at);
        Some(at)
    }

    /// A free slot: a new one up to five times the room, then one that no cache holds.
    fn slot(&mut self, room: Room) -> u32 {
        let most = room.regions.clamp(16, 1 << 20) as usize * 5;
        let len = self.seen.len();
        if len < most {
            return len as u32;
        }
        for _ in 0..len {
            self.hand = (self.hand + 1) % len;
            if self.seen[self.hand].place == [OUT; RULES] {
                return self.hand as u32;
            }
        }
        len as u32
    }

    fn admit(&mut self, rule: usize, at: u32) {
        let (cache, seen) = (&mut self.caches[rule], &mut self.seen[at as usize]);
        seen.place[rule] = cache.members.len() as u32;
        cache.born += 1;
        seen.born[rule] = cache.born;
        cache.members.push(at);
        cache.pages += seen.pages;
    }

    fn drop_from(&mut self, rule: usize, at: u32) {
        let (cache, seen) = (&mut self.caches[rule], &mut self.seen[at as usize]);
        let place = std::mem::replace(&mut seen.place[rule], OUT);
        if place != OUT {
            cache.pages -= seen.pages;
            cache.members.swap_remove(place as usize);
            if let Some(&moved) = cache.members.get(place as usize) {
                self.seen[moved as usize].place[rule] = place;
            }
        }
    }

    fn shrink(&mut self, rule: usize, keep: u32, now: u64, room: Room) {
        while self.caches[rule].members.len() > 1 && self.is_full(rule, room) {
            let victim = self.choose(rule, keep, now, room);
            self.drop_from(rule, victim);
        }
    }

    fn is_full(&self, rule: usize, room: Room) -> bool {
        let cache = &self.caches[rule];
        if room.by_regions { cache.members.len() as u64 > room.regions } else { cache.pages > room.pages }
    }

    fn choose(&mut self, rule: usize, keep: u32, now: u64, room: Room) -> u32 {
        let mut best = (f64::NEG_INFINITY, keep);
        for _ in 0..CANDIDATES {
            self.draws = self.draws.wrapping_add(1);
            let members = &self.caches[rule].members;
            let at = members[(mix(self.draws) >> 32) as usize % members.len()];
            let score = Rule::ALL[rule].score(&self.candidate(rule, at, now, room));
            if at != keep && score > best.0 {
                best = (score, at);
            }
        }
        if best.1 == keep { self.other_than(rule, keep) } else { best.1 }
    }

    fn other_than(&self, rule: usize, keep: u32) -> u32 {
        let members = &self.caches[rule].members;
        members.iter().copied().find(|m| *m != keep).unwrap_or(keep)
    }

    fn candidate(&self, rule: usize, at: u32, now: u64, room: Room) -> Candidate {
        let seen = &self.seen[at as usize];
        let newest = self.caches[rule].born - seen.born[rule];
        Candidate {
            age: now - seen.last,
            interval: seen.interval,
            size_per_ns: if room.by_regions { 1.0 } else { seen.pages as f64 } / seen.cost_ns.max(1) as f64,
            is_new: newest < room.regions / 64,
        }
    }
}
