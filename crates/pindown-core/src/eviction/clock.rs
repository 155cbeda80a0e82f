//! [`UseClock`]: how a hit leaves a trace for the policy without a shared write.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Bits of the reuse interval, a small float: 6 bits of exponent, 6 of mantissa.
const INTERVAL_BITS: u32 = 12;
const MANTISSA_BITS: u32 = 6;
const INTERVAL_MASK: u64 = (1 << INTERVAL_BITS) - 1;

/// When a region was last used (52 bits) and how long before that (12 bits, to 1.6 %).
///
/// The stamp is in the high bits, so that words compare as their stamps do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct UseWord(u64);

impl UseWord {
    /// Used now for the first time.
    pub fn first(now: u64) -> Self {
        Self(now << INTERVAL_BITS)
    }

    /// As stored by the cache.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// To be stored by the cache.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Time of the last use that was written down, in requests.
    #[inline]
    pub fn stamp(self) -> u64 {
        self.0 >> INTERVAL_BITS
    }

    /// Time between the last two uses, in requests, rounded down; `None` after a single use.
    #[inline]
    pub fn interval(self) -> Option<u64> {
        decode(self.0 & INTERVAL_MASK)
    }

    /// After one more use.
    #[inline]
    pub fn used_at(self, now: u64) -> Self {
        let interval = now.saturating_sub(self.stamp()).max(1);
        Self(now << INTERVAL_BITS | encode(interval))
    }
}

/// Floor to 7 significant bits. Zero means unknown, so 1 is the least.
pub(super) fn encode(interval: u64) -> u64 {
    let exponent = u64::from(interval.max(1).ilog2());
    let mantissa = (interval << (63 - exponent)) >> (63 - MANTISSA_BITS) & ((1 << MANTISSA_BITS) - 1);
    (exponent << MANTISSA_BITS | mantissa) + 1
}

pub(super) fn decode(code: u64) -> Option<u64> {
    let code = code.checked_sub(1)?;
    let (exponent, mantissa) = (code >> MANTISSA_BITS, code & ((1 << MANTISSA_BITS) - 1));
    let significand = 1 << MANTISSA_BITS | mantissa;
    Some(significand << exponent >> MANTISSA_BITS)
}

const RING: usize = 256;

/// Time in requests, and the hits' side of it. One a cache.
///
/// Time stands still between calls of [`advance`](Self::advance), so a run of hits without a miss
/// writes each region's word at most once.
#[derive(Debug)]
pub struct UseClock {
    /// Words below this are rewritten by a hit. Alone with `now` on a line that only slow paths write.
    refresh_below: AtomicU64,
    now: AtomicU64,
    /// A hit rewrites a stamp that is older than this many requests.
    quantum: AtomicU64,
    /// Ids with `id_hash % 2^shift == 0` are reported; 64: none.
    sample_shift: AtomicU32,
    ring: Ring,
}

/// Sampled ids that hits reported. Lossy: what comes when it is full is dropped.
#[derive(Debug)]
struct Ring {
    next: AtomicU64,
    taken: AtomicU64,
    ids: Box<[AtomicU64]>,
}

impl UseClock {
    /// `sampling_shift` as the policy says ([`EvictionPolicy::sampling_shift`](super::EvictionPolicy::sampling_shift)).
    pub fn new(sampling_shift: Option<u32>) -> Self {
        let slots = if sampling_shift.is_some() { RING } else { 0 };
        Self {
            refresh_below: AtomicU64::new(0),
            now: AtomicU64::new(1),
            quantum: AtomicU64::new(1),
            sample_shift: AtomicU32::new(sampling_shift.unwrap_or(64)),
            ring: Ring {
                next: AtomicU64::new(0),
                taken: AtomicU64::new(0),
                ids: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            },
        }
    }

    /// A hit on the region whose word is `word` and whose [`Inserted::id`](super::Inserted::id) is
    /// `id`: two loads and a compare, mostly.
    #[inline(always)]
    pub fn hit(&self, word: &AtomicU64, id: u64) {
        let old = word.load(Ordering::Relaxed);
        if old < self.refresh_below.load(Ordering::Relaxed) {
            self.refresh(word, old, id);
        }
    }

    /// Whether [`hit`](Self::hit) would write.
    #[inline(always)]
    pub fn is_due(&self, word: &AtomicU64) -> bool {
        word.load(Ordering::Relaxed) < self.refresh_below.load(Ordering::Relaxed)
    }

    /// Two threads that refresh one word at a time write the same time: either may win.
    #[cold]
    #[inline(never)]
    fn refresh(&self, word: &AtomicU64, old: u64, id: u64) {
        // After the miss that set the time.
        word.store(UseWord(old).used_at(self.now() + 1).0, Ordering::Relaxed);
        if is_sampled(id, self.sample_shift.load(Ordering::Relaxed)) {
            self.ring.push(id);
        }
    }

    /// The time.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Sets the time to the number of requests so far (never back). Call under the cache's lock, on
    /// misses and on the worker's tick.
    pub fn advance(&self, requests: u64) {
        let now = requests.max(self.now());
        self.now.store(now, Ordering::Relaxed);
        let below = (now + 2).saturating_sub(self.quantum.load(Ordering::Relaxed));
        self.raise(below);
    }

    /// Makes every hit from now on write its region's word once, whatever its age: for the worker's
    /// tick, so that idle time is seen even when requests are rare.
    pub fn refresh_all(&self) {
        let now = self.now() + 1;
        self.now.store(now, Ordering::Relaxed);
        self.raise(now + 1);
    }

    fn raise(&self, below: u64) {
        let word = UseWord::first(below).0;
        if word > self.refresh_below.load(Ordering::Relaxed) {
            self.refresh_below.store(word, Ordering::Relaxed);
        }
    }

    /// Tells how many regions there are room for: stamps are kept to a sixteenth of that.
    pub fn set_capacity(&self, regions: u64) {
        self.quantum.store((regions / 16).max(1), Ordering::Relaxed);
    }

    /// Tells which ids to report, as the policy now wants it. No effect on a clock made without.
    pub fn set_sampling(&self, shift: Option<u32>) {
        if !self.ring.ids.is_empty() {
            self.sample_shift.store(shift.unwrap_or(64), Ordering::Relaxed);
        }
    }

    /// Moves the sampled ids into `out` (cleared first), oldest first. Call under the cache's lock.
    pub fn take_samples(&self, out: &mut Vec<u64>) {
        out.clear();
        self.ring.take(out);
    }
}

impl Ring {
    fn push(&self, id: u64) {
        let taken = self.taken.load(Ordering::Acquire);
        if self.next.load(Ordering::Relaxed).wrapping_sub(taken) >= RING as u64 {
            return;
        }
        let at = self.next.fetch_add(1, Ordering::Relaxed) as usize % RING;
        // Zero marks an empty slot; page 0 is never registered.
        self.ids[at].store(id, Ordering::Release);
    }

    /// A slot that was claimed and not yet written reads zero: its sample is lost.
    fn take(&self, out: &mut Vec<u64>) {
        let next = self.next.load(Ordering::Relaxed);
        let taken = self.taken.load(Ordering::Relaxed).max(next.saturating_sub(RING as u64));
        for n in taken..next {
            let id = self.ids[n as usize % RING].swap(0, Ordering::AcqRel);
            out.extend((id != 0).then_some(id));
        }
        self.taken.store(next, Ordering::Release);
    }
}

/// Spreads ids (page numbers, often in regular steps) over all 64 bits.
#[inline]
pub(crate) fn mix(id: u64) -> u64 {
    let x = (id ^ id >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Whether `id` is one of the one in `2^shift`.
#[inline]
pub(crate) fn is_sampled(id: u64, shift: u32) -> bool {
    shift < 64 && mix(id).checked_shr(64 - shift).unwrap_or(0) == 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn intervals_survive_to_within_their_precision() {
        assert_eq!(UseWord::first(9).interval(), None);
        for interval in (1..200).chain([1000, 65_535, 1 << 30, (1 << 40) + 12345]) {
            let word = UseWord::first(77).used_at(77 + interval);
            let got = word.interval().unwrap();
            assert!(got <= interval && got >= interval - interval / 64, "{interval}: {got}");
            assert_eq!(word.stamp(), 77 + interval);
        }
    }

    #[test]
    fn a_hit_writes_only_what_is_old() {
        let clock = UseClock::new(None);
        clock.set_capacity(160);
        clock.advance(1000);
        let word = AtomicU64::new(UseWord::first(1000).bits());
        let stamp = || UseWord::from_bits(word.load(Ordering::Relaxed)).stamp();
        clock.advance(1008);
        clock.hit(&word, 1);
        assert_eq!(stamp(), 1000);
        clock.advance(1009);
        clock.hit(&word, 1);
        assert_eq!(stamp(), 1010);
        clock.refresh_all();
        clock.hit(&word, 1);
        assert_eq!(stamp(), 1011);
        clock.hit(&word, 1);
        clock.advance(1011);
        clock.hit(&word, 1);
        assert_eq!(stamp(), 1011);
    }

    #[test]
    fn samples_are_the_same_ids_each_time_and_about_as_many_as_asked() {
        let clock = UseClock::new(Some(4));
        let (mut seen, mut taken) = (Vec::new(), Vec::new());
        for id in 1..=4096 {
            clock.advance(id + 10);
            clock.hit(&AtomicU64::new(0), id << 4);
            clock.take_samples(&mut taken);
            seen.append(&mut taken);
        }
        assert!((180..330).contains(&seen.len()), "{}", seen.len());
        assert!(seen.iter().all(|id| is_sampled(*id, 4)));
    }

    #[test]
    fn a_full_ring_drops_and_recovers() {
        let ring = UseClock::new(Some(1)).ring;
        (1..1000).for_each(|id| ring.push(id));
        let mut out = Vec::new();
        ring.take(&mut out);
        assert_eq!(out, (1..=RING as u64).collect::<Vec<_>>());
        ring.push(5000);
        out.clear();
        ring.take(&mut out);
        assert_eq!(out, [5000]);
    }
}
