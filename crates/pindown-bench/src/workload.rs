//! Which region is asked for next, and where regions lie.

/// Regions lie this far apart, in bytes.
pub(crate) const STRIDE: usize = 32 << 10;

/// Requests of one round.
pub(crate) const OPS: usize = 1 << 20;

/// The order of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The first region, always.
    Same,
    /// Each thread its own region, always.
    Distinct,
    /// Any, equally likely.
    Uniform,
    /// Any, with Zipf's distribution (exponent 0.99).
    Zipf,
    /// As uniform, but the address depends on what the request before returned.
    Dependent,
}

/// Length of region `n` in bytes: one to four pages.
#[inline(always)]
pub(crate) fn len_of(n: usize) -> usize {
    4096 * (1 + ((n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62) as usize)
}

/// xorshift64: enough to choose regions by.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// All of `0..n`, in random order.
pub(crate) fn shuffled(n: usize, seed: u64) -> Vec<u32> {
    let (mut all, mut random) = ((0..n as u32).collect::<Vec<_>>(), Random::new(seed));
    for i in (1..n).rev() {
        all.swap(i, random.below(i + 1));
    }
    all
}

impl Order {
    /// The regions that thread `thread` asks for, one after the other.
    pub(crate) fn requests(self, regions: usize, thread: usize) -> Vec<u32> {
        let mut random = Random::new(thread as u64 + 1);
        match self {
            Self::Same => vec![0; OPS],
            Self::Distinct => vec![thread as u32; OPS],
            Self::Uniform | Self::Dependent => (0..OPS).map(|_| random.below(regions) as u32).collect(),
            Self::Zipf => zipf(regions, &mut random),
        }
    }
}

fn zipf(regions: usize, random: &mut Random) -> Vec<u32> {
    let mut sum = 0.0;
    let weights = (0..regions).map(|i| {
        sum += ((i + 1) as f64).powf(-0.99);
        sum
    });
    let weights: Vec<f64> = weights.collect();
    let names = shuffled(regions, 77);
    let mut draw = || (random.next() >> 11) as f64 / (1u64 << 53) as f64 * sum;
    let rank = |at: f64| weights.partition_point(|w| *w < at).min(regions - 1);
    (0..OPS).map(|_| names[rank(draw())]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_has_each_once_and_zipf_has_favourites() {
        let mut all = shuffled(1000, 3);
        assert!(all.iter().enumerate().any(|(i, n)| i != *n as usize));
        all.sort_unstable();
        assert!(all.iter().enumerate().all(|(i, n)| i == *n as usize));
        let mut counts = vec![0usize; 1000];
        Order::Zipf.requests(1000, 0).iter().for_each(|n| counts[*n as usize] += 1);
        counts.sort_unstable();
        assert!(counts[999] > OPS / 10 && counts[500] < OPS / 500, "{} {}", counts[999], counts[500]);
    }
}
