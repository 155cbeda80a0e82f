//! A small random generator: the suite must come out the same everywhere, forever.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Uniform in `0..n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    /// Standard normal, by the sum of twelve.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// Zipf-distributed ranks by inversion of the cumulative sum.
pub(crate) struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(n: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let cumulative = (1..=n).map(|k| {
            sum += (k as f64).powf(-exponent);
            sum
        });
        Self { cumulative: cumulative.collect() }
    }

    /// How likely each of `things` is, which share `mass` in all.
    pub(crate) fn law<T: Copy>(&self, things: &[T], mass: f64) -> Vec<(T, f64)> {
        let total = self.cumulative.last().copied().unwrap_or(1.0);
        let before = std::iter::once(0.0).chain(self.cumulative.iter().copied());
        let chances = self.cumulative.iter().zip(before).map(|(upto, before)| (upto - before) / total * mass);
        things.iter().copied().zip(chances).collect()
    }

    pub(crate) fn draw(&self, rng: &mut Rng) -> usize {
        let total = self.cumulative.last().copied().unwrap_or(1.0);
        let at = rng.unit() * total;
        self.cumulative.partition_point(|c| *c < at).min(self.cumulative.len() - 1)
    }
}
