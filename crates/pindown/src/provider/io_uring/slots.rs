//! [`Slots`]: which slots of the table are taken.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Slots `first..first + count` of a ring's table of buffers.
#[derive(Debug)]
pub(super) struct Slots {
    first: u32,
    count: u32,
    taken: Mutex<Taken>,
}

#[derive(Debug)]
struct Taken {
    /// Bit `i` is set when slot `first + i` is taken; bits past `count` are always set.
    words: Box<[u64]>,
    live: u32,
    /// Where to look first. A freed slot is not taken again at once: a key that outlived its
    /// registration by mistake then meets an empty slot and EFAULT rather than other memory.
    next: u32,
}

impl Slots {
    pub(super) fn new(first: u32, count: u32) -> Self {
        let mut words = vec![0u64; count.div_ceil(64) as usize].into_boxed_slice();
        if !count.is_multiple_of(64) {
            *words.last_mut().expect("count is not zero") = u64::MAX << (count % 64);
        }
        Self { first, count, taken: Mutex::new(Taken { words, live: 0, next: 0 }) }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Whether `slot` is one of these, taken or not.
    pub(super) fn contains(&self, slot: u16) -> bool {
        (self.first..self.first + self.count).contains(&u32::from(slot))
    }

    /// How many are taken.
    pub(super) fn live(&self) -> u32 {
        self.lock().live
    }

    /// Takes `count` slots in a row and returns the first; `None` when there is no such run.
    pub(super) fn take(&self, count: u32) -> Option<u16> {
        let mut taken = self.lock();
        let start = taken.free_run(count, self.count)?;
        for i in start..start + count {
            taken.words[(i / 64) as usize] |= 1 << (i % 64);
        }
        taken.live += count;
        taken.next = (start + count) % self.count;
        u16::try_from(self.first + start).ok()
    }

    /// Gives `count` slots from `slot` on back.
    pub(super) fn put(&self, slot: u16, count: u32) {
        let mut taken = self.lock();
        let start = u32::from(slot) - self.first;
        for i in start..start + count {
            let (word, bit) = ((i / 64) as usize, 1 << (i % 64));
            debug_assert_ne!(taken.words[word] & bit, 0, "slot {slot} was free");
            taken.words[word] &= !bit;
        }
        taken.live -= count;
    }

    /// No panic can happen while it is held that leaves it half changed.
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// The first run of `count` free slots at or after `next`, else from the front.
    fn free_run(&self, count: u32, end: u32) -> Option<u32> {
        if count == 0 || count > end {
            return None;
        }
        let behind = self.run_between(self.next, end, count);
        behind.or_else(|| self.run_between(0, self.next.saturating_add(count - 1).min(end), count))
    }

    fn run_between(&self, from: u32, end: u32, count: u32) -> Option<u32> {
        let mut start = from;
        let mut i = from;
        while i < end {
            let word = self.words[(i / 64) as usize] >> (i % 64);
            if word & 1 == 0 {
                i += 1;
                if i - start == count {
                    return Some(start);
                }
                continue;
            }
            // Skip all taken slots of this word at once.
            i += (!word).trailing_zeros().min(64 - i % 64);
            start = i;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_out_each_slot_once_then_none() {
        let slots = Slots::new(5, 130);
        let mut all: Vec<_> = std::iter::from_fn(|| slots.take(1)).collect();
        all.sort_unstable();
        assert_eq!(all, (5..135).collect::<Vec<u16>>());
        assert_eq!(slots.live(), 130);
        slots.put(77, 1);
        assert_eq!(slots.take(1), Some(77));
        assert_eq!(slots.take(1), None);
    }

    #[test]
    fn a_freed_slot_is_the_last_to_be_taken_again() {
        let slots = Slots::new(0, 4);
        let first = slots.take(1).unwrap();
        slots.put(first, 1);
        let next: Vec<_> = (0..4).map(|_| slots.take(1).unwrap()).collect();
        assert_eq!(next, [1, 2, 3, 0]);
    }

    #[test]
    fn runs_are_in_a_row() {
        let slots = Slots::new(0, 100);
        assert_eq!(slots.take(60), Some(0));
        assert_eq!(slots.take(50), None);
        assert_eq!(slots.take(40), Some(60));
        slots.put(10, 3);
        slots.put(20, 8);
        assert_eq!(slots.take(4), Some(20));
        assert_eq!(slots.take(0), None);
        assert_eq!(slots.take(101), None);
    }

    /// Against a plain array of flags, with random runs taken and put.
    #[test]
    fn agrees_with_a_naive_table() {
        let slots = Slots::new(0, 200);
        let mut naive = [false; 200];
        let mut held = Vec::new();
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let n = (seed >> 33) as usize % 7 + 1;
            if seed >> 62 == 0 && !held.is_empty() {
                let (slot, len): (u16, usize) = held.swap_remove((seed >> 40) as usize % held.len());
                slots.put(slot, len as u32);
                naive[slot as usize..][..len].fill(false);
                continue;
            }
            let possible = naive.windows(n).any(|w| w.iter().all(|taken| !taken));
            let got = slots.take(n as u32);
            assert_eq!(got.is_some(), possible);
            if let Some(slot) = got {
                assert!(naive[slot as usize..][..n].iter().all(|taken| !taken), "slot handed out twice");
                naive[slot as usize..][..n].fill(true);
                held.push((slot, n));
            }
        }
        assert_eq!(slots.live() as usize, naive.iter().filter(|t| **t).count());
    }
}
