//! The default: ranks by expected reuse and price, or by age, whichever costs less lately.

use super::clock::{is_sampled, mix};
use super::ghosts::Ghosts;
use super::rule::{Candidate, Rule};
use super::shadow::{Room, Shadow};
use super::{EvictionPolicy, Inserted, Removal, Shortage, UseWord, Uses};

/// How many registrations an eviction looks at.
const CANDIDATES: usize = 8;
/// How many of the worst that an eviction saw the next one looks at again.
const KEPT: usize = 8;
/// Another ranking must cost less than this share of the present one's.
const SWITCH_BELOW: f64 = 0.98;
const ABSENT: u32 = u32::MAX;

/// Looks at a few registrations chosen at random and drops the worst by one of three rankings. Which
/// one is decided by simulating all three on a sample of the ids.
#[derive(Debug)]
pub struct Adaptive {
    entries: Vec<Entry>,
    /// By region: its place in `entries`.
    places: Vec<u32>,
    ghosts: Ghosts,
    shadow: Shadow,
    rule: Rule,
    sampling_shift: u32,
    by_regions: bool,
    /// Regions and pages when room was last short.
    full: (u64, u64),
    pages: u64,
    born: u64,
    draws: u64,
    /// Regions that ranked badly last time.
    kept: Vec<(f64, u32)>,
}

/// One registration; 40 bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    region: u32,
    /// Pages, capped: 16 TiB are large enough to compare.
    pages: u32,
    /// One over the cost of registering it.
    per_ns: f64,
    id: u64,
    born: u64,
    /// The interval that ended with its insertion, if its memory was known.
    interval: Option<std::num::NonZeroU64>,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            places: Vec::new(),
            ghosts: Ghosts::default(),
            shadow: Shadow::default(),
            rule: Rule::Lru,
            sampling_shift: 0,
            by_regions: false,
            full: (u64::MAX, u64::MAX),
            pages: 0,
            born: 0,
            draws: 0,
            kept: Vec::new(),
        }
    }
}

impl Adaptive {
    /// The room of a simulated cache: any until the real one was full for the first time.
    fn room(&self) -> Room {
        let shift = self.sampling_shift;
        Room {
            regions: (self.full.0 >> shift).max(4),
            pages: (self.full.1 >> shift).max(4),
            by_regions: self.by_regions,
        }
    }

    /// Keeps the simulations at 128 entries or more, and at most at a sixteenth.
    fn set_sampling(&mut self) {
        let wanted = (self.entries.len() as u64 / 128).max(1).ilog2().min(4);
        if wanted > self.sampling_shift {
            self.sampling_shift = wanted;
            self.shadow.thin(wanted);
        }
    }

    fn choose_rule(&mut self) {
        let costs = self.shadow.costs();
        let present = costs[self.rule as usize];
        let best = Rule::ALL.into_iter().min_by(|a, b| costs[*a as usize].total_cmp(&costs[*b as usize]));
        if let Some(best) = best.filter(|b| costs[*b as usize] < present * SWITCH_BELOW) {
            self.rule = best;
        }
    }

    fn draw(&mut self) -> usize {
        self.draws = self.draws.wrapping_add(1);
        ((u128::from(mix(self.draws)) * self.entries.len() as u128) >> 64) as usize
    }

    fn candidate(&self, entry: &Entry, uses: &dyn Uses) -> Candidate {
        let word = uses.word(entry.region);
        Candidate {
            age: uses.now().saturating_sub(word.stamp()),
            interval: word.interval().or(entry.interval.map(u64::from)),
            size_per_ns: if self.by_regions { 1.0 } else { f64::from(entry.pages) } * entry.per_ns,
            is_new: self.born - entry.born < self.entries.len() as u64 / 64,
        }
    }

    /// Scores the region at `at`; keeps it if it is among the worst, not held and not kept already.
    fn consider(&mut self, at: usize, uses: &dyn Uses) {
        let entry = &self.entries[at];
        let score = self.rule.score(&self.candidate(entry, uses));
        let is_full = self.kept.len() > KEPT;
        if is_full && score <= self.kept[0].0 {
            return;
        }
        let region = entry.region;
        if uses.held(region) || self.kept.iter().any(|(_, r)| *r == region) {
            return;
        }
        if is_full {
            self.kept.remove(0);
        }
        let place = self.kept.partition_point(|(s, _)| *s < score);
        self.kept.insert(place, (score, region));
    }

    fn worst_of_some(&mut self, uses: &dyn Uses) -> Option<u32> {
        let (mut again, count) = ([0; KEPT + 1], self.kept.len());
        again.iter_mut().zip(self.kept.drain(..)).for_each(|(to, (_, region))| *to = region);
        for region in &again[..count] {
            if let Some(&at) = self.places.get(*region as usize).filter(|p| **p != ABSENT) {
                self.consider(at as usize, uses);
            }
        }
        for _ in 0..CANDIDATES {
            let at = self.draw();
            self.consider(at, uses);
        }
        self.kept.pop().map(|(_, region)| region)
    }
}

impl EvictionPolicy for Adaptive {
    fn name(&self) -> &'static str {
        "adaptive"
    }

    fn inserted(&mut self, new: Inserted, now: u64) {
        let at = new.region as usize;
        self.removed(new.region, UseWord::default(), Removal::Invalidated);
        self.places.resize(self.places.len().max(at + 1), ABSENT);
        self.places[at] = self.entries.len() as u32;
        let before = self.ghosts.take(new.id).map(|last| now.saturating_sub(last.stamp()).max(1));
        self.born += 1;
        self.entries.push(Entry {
            region: new.region,
            pages: new.pages.min(u64::from(u32::MAX)) as u32,
            per_ns: 1.0 / new.cost_ns.max(1) as f64,
            id: new.id,
            born: self.born,
            interval: before.and_then(std::num::NonZeroU64::new),
        });
        self.pages += new.pages.min(u64::from(u32::MAX));
        self.set_sampling();
        if is_sampled(new.id, self.sampling_shift) {
            let room = self.room();
            self.shadow.access(new.id, Some((new.pages, new.cost_ns)), now, room);
        }
    }

    fn removed(&mut self, region: u32, last: UseWord, why: Removal) {
        let Some(place) = self.places.get_mut(region as usize).filter(|p| **p != ABSENT) else { return };
        let at = std::mem::replace(place, ABSENT) as usize;
        let entry = self.entries.swap_remove(at);
        if let Some(moved) = self.entries.get(at) {
            self.places[moved.region as usize] = at as u32;
        }
        self.pages -= u64::from(entry.pages);
        match why {
            Removal::Evicted => {
                self.ghosts.reserve(self.entries.len());
                self.ghosts.put(entry.id, last);
            }
            Removal::Invalidated if is_sampled(entry.id, self.sampling_shift) => self.shadow.forget(entry.id),
            Removal::Invalidated => {}
        }
    }

    fn victim(&mut self, uses: &dyn Uses) -> Option<u32> {
        if self.entries.is_empty() {
            return None;
        }
        self.by_regions = uses.short_of() == Shortage::Regions;
        self.full = (self.entries.len() as u64, self.pages);
        self.choose_rule();
        self.worst_of_some(uses).or_else(|| {
            // All that were drawn are held: any other will do.
            self.entries.iter().map(|e| e.region).find(|r| !uses.held(*r))
        })
    }

    fn sampling_shift(&self) -> Option<u32> {
        Some(self.sampling_shift)
    }

    fn reused(&mut self, ids: &[u64], now: u64) {
        let room = self.room();
        ids.iter().for_each(|id| self.shadow.access(*id, None, now, room));
    }
}
