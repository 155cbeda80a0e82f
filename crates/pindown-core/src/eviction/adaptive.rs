//! The default: ranks by expected reuse and price, or by age, whichever costs less lately.

use super::clock::{decode, encode, is_sampled, mix};
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

/// Looks at a few registrations chosen at random and drops the worst by one of three rankings. Which
/// one is decided by simulating all three on a sample of the ids.
#[derive(Debug)]
pub struct Adaptive {
    /// By region.
    entries: Vec<Entry>,
    /// A bit a region: it is in.
    present: Vec<u64>,
    live: u64,
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

/// One registration in one word, since there may be millions: its number (28 bits), and as the small
/// floats of [`UseWord`](super::UseWord) its length in pages, what registering it cost, and the interval
/// that ended with its insertion, if its memory was known.
#[derive(Clone, Copy, Debug, Default)]
struct Entry(u64);

const BORN_BITS: u32 = 28;

impl Entry {
    fn new(new: &Inserted, born: u64, interval: Option<u64>) -> Self {
        let codes = [encode(new.pages), encode(new.cost_ns), interval.map_or(0, encode)];
        Self(codes.into_iter().fold(born & ((1 << BORN_BITS) - 1), |word, code| word << 12 | code))
    }
    fn interval(self) -> Option<u64> {
        decode(self.0 & 0xfff)
    }
    fn cost_ns(self) -> u64 {
        decode(self.0 >> 12 & 0xfff).unwrap_or(1)
    }
    fn pages(self) -> u64 {
        decode(self.0 >> 24 & 0xfff).unwrap_or(1)
    }
    /// How many were inserted after it.
    fn newer(self, born: u64) -> u64 {
        born.wrapping_sub(self.0 >> 36) & ((1 << BORN_BITS) - 1)
    }
}

impl Default for Adaptive {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            present: Vec::new(),
            live: 0,
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

    /// Keeps the simulations at 128 entries or more, and at a sixteenth or 8192 entries: so what they take
    /// does not grow with the cache.
    fn set_sampling(&mut self) {
        let log = |per: u64| (self.live / per).max(1).ilog2();
        let wanted = log(128).min(4).max(log(4096));
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

    /// One at random. Regions' numbers are dense, mostly: where they are not, what comes after a gap is a
    /// little more likely.
    fn draw(&mut self) -> Option<u32> {
        let mut at = 0;
        for _ in 0..CANDIDATES {
            self.draws = self.draws.wrapping_add(1);
            at = ((u128::from(mix(self.draws)) * self.entries.len() as u128) >> 64) as u32;
            if self.is_in(at) {
                return Some(at);
            }
        }
        self.next_after(at)
    }

    /// The first that is in from `at` on, or from the start.
    fn next_after(&self, at: u32) -> Option<u32> {
        let (word, words) = (at as usize / 64, self.present.len());
        let beyond = (1..=words).map(|n| (word + n) % words);
        let here = (word, self.present.get(word)? >> (at % 64) << (at % 64));
        let mut all = std::iter::once(here).chain(beyond.map(|n| (n, self.present[n])));
        all.find(|(_, bits)| *bits != 0).map(|(n, bits)| n as u32 * 64 + bits.trailing_zeros())
    }

    fn is_in(&self, region: u32) -> bool {
        self.present.get(region as usize / 64).is_some_and(|bits| bits >> (region % 64) & 1 != 0)
    }

    fn candidate(&self, region: u32, uses: &dyn Uses) -> Candidate {
        let (word, entry) = (uses.word(region), self.entries[region as usize]);
        let size = if self.by_regions { 1.0 } else { entry.pages() as f64 };
        Candidate {
            age: uses.now().saturating_sub(word.stamp()),
            interval: word.interval().or_else(|| entry.interval()),
            size_per_ns: size / entry.cost_ns() as f64,
            is_new: entry.newer(self.born) < self.live / 64,
        }
    }

    /// Scores a region; keeps it if it is among the worst, not held and not kept already.
    fn consider(&mut self, region: u32, uses: &dyn Uses) {
        let score = self.rule.score(&self.candidate(region, uses));
        let is_full = self.kept.len() > KEPT;
        if is_full && score <= self.kept[0].0 {
            return;
        }
        if uses.held(region) || self.kept.iter().any(|(_, r)| *r == region) {
            return;
        }
        if is_full {
            self.kept.remove(0);
        }
        let place = self.kept.partition_point(|(s, _)| *s < score);
        self.kept.insert(place, (score, region));
    }

    /// Whether it was in.
    fn take_out(&mut self, region: u32) -> bool {
        let was_in = self.is_in(region);
        if was_in {
            self.present[region as usize / 64] &= !(1 << (region % 64));
            self.live -= 1;
            self.pages -= self.entries[region as usize].pages();
        }
        was_in
    }

    fn worst_of_some(&mut self, uses: &dyn Uses) -> Option<u32> {
        let (mut again, count) = ([0; KEPT + 1], self.kept.len());
        again.iter_mut().zip(self.kept.drain(..)).for_each(|(to, (_, region))| *to = region);
        for region in &again[..count] {
            if self.is_in(*region) {
                self.consider(*region, uses);
            }
        }
        for _ in 0..CANDIDATES {
            if let Some(region) = self.draw() {
                self.consider(region, uses);
            }
        }
        self.kept.pop().map(|(_, region)| region)
    }
}

impl EvictionPolicy for Adaptive {
    fn name(&self) -> &'static str {
        "adaptive"
    }

    fn inserted(&mut self, new: Inserted, now: u64) {
        self.take_out(new.region);
        let before = self.ghosts.take(new.id).map(|last| now.saturating_sub(last.stamp()).max(1));
        self.born += 1;
        let entry = Entry::new(&new, self.born, before);
        let at = new.region as usize;
        self.entries.resize(self.entries.len().max(at + 1), Entry::default());
        self.present.resize(self.present.len().max(at / 64 + 1), 0);
        self.entries[at] = entry;
        self.present[at / 64] |= 1 << (at % 64);
        self.live += 1;
        self.pages += entry.pages();
        self.set_sampling();
        if is_sampled(new.id, self.sampling_shift) {
            let room = self.room();
            self.shadow.access(new.id, Some((new.pages, new.cost_ns)), now, room);
        }
    }

    fn removed(&mut self, region: u32, id: u64, last: UseWord, why: Removal) {
        if !self.take_out(region) {
            return;
        }
        match why {
            Removal::Evicted => {
                self.ghosts.reserve(self.live as usize);
                self.ghosts.put(id, last);
            }
            Removal::Invalidated if is_sampled(id, self.sampling_shift) => self.shadow.forget(id),
            Removal::Invalidated => {}
        }
    }

    fn victim(&mut self, uses: &dyn Uses) -> Option<u32> {
        if self.live == 0 {
            return None;
        }
        self.by_regions = uses.short_of() == Shortage::Regions;
        self.full = (self.live, self.pages);
        self.choose_rule();
        self.worst_of_some(uses).or_else(|| {
            // All that were drawn are held: any other will do.
            (0..self.entries.len() as u32).find(|r| self.is_in(*r) && !uses.held(*r))
        })
    }

    fn sampling_shift(&self) -> Option<u32> {
        Some(self.sampling_shift)
    }

    fn arena_bytes(&self) -> usize {
        self.ghosts.bytes() + self.shadow.bytes()
    }

    fn reused(&mut self, ids: &[u64], now: u64) {
        let room = self.room();
        ids.iter().for_each(|id| self.shadow.access(*id, None, now, room));
    }
}
