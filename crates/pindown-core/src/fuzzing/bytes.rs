//! [`Bytes`]: choices from fuzzed bytes.

/// Hands out the bytes; zeroes when they are used up.
pub(super) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// Below `n` (at most 65536).
    pub(super) fn below(&mut self, n: u64) -> u64 {
        let low = u64::from(self.byte());
        if n <= 256 { low % n } else { (low | u64::from(self.byte()) << 8) % n }
    }
}
