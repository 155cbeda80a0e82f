//! [`Random`]: a thread's own sequence, from the seed.

/// xorshift64*.
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mixed = (seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self(mixed | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Less than `n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A part of `pages` pages: first and length.
    pub(super) fn part(&mut self, pages: usize) -> (usize, usize) {
        let first = self.below(pages);
        (first, 1 + self.below(pages - first))
    }
}
