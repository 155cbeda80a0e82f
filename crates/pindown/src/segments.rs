//! [`Segments`]: memory that took more than one registration.

use pindown_core::{PageRange, Provider, Registration};

/// One part of a request, and the key of its memory.
#[derive(Debug)]
pub struct Segment<P: Provider> {
    addr: usize,
    len_bytes: usize,
    key: P::Key,
    /// `None`: the key is of all memory and needs no hold.
    held: Option<Registration<P>>,
}

impl<P: Provider> Segment<P> {
    pub(crate) fn new(addr: usize, len_bytes: usize, held: Registration<P>) -> Self {
        Self { addr, len_bytes, key: held.key(), held: Some(held) }
    }

    pub(crate) fn of_everything(addr: usize, len_bytes: usize, key: P::Key) -> Self {
        Self { addr, len_bytes, key, held: None }
    }

    /// Its first byte.
    pub fn addr(&self) -> *const u8 {
        std::ptr::with_exposed_provenance(self.addr)
    }

    /// Its length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// What goes into the work request.
    pub fn key(&self) -> P::Key {
        self.key
    }

    /// The registration, unless the key is of all memory.
    pub fn registration(&self) -> Option<&Registration<P>> {
        self.held.as_ref()
    }

    fn range(&self) -> Option<PageRange> {
        PageRange::covering(self.addr, self.len_bytes).ok()
    }
}

impl<P: Provider> Clone for Segment<P> {
    fn clone(&self) -> Self {
        Self { held: self.held.clone(), ..*self }
    }
}

/// One handle on memory that several registrations cover, in order of addresses and without gaps.
/// All are held until it is dropped. Hold it until the transfer has completed.
#[derive(Debug)]
pub struct Segments<P: Provider>(Vec<Segment<P>>);

impl<P: Provider> Segments<P> {
    pub(crate) fn new(segments: Vec<Segment<P>>) -> Self {
        Self(segments)
    }

    /// The segments.
    pub fn as_slice(&self) -> &[Segment<P>] {
        &self.0
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Bytes of all.
    pub fn len_bytes(&self) -> usize {
        self.0.iter().map(|s| s.len_bytes).sum()
    }

    /// The segments.
    pub fn iter(&self) -> std::slice::Iter<'_, Segment<P>> {
        self.0.iter()
    }

    /// Whether any of its memory is known to have changed since it was registered.
    pub fn is_stale(&self) -> bool {
        self.0.iter().filter_map(Segment::registration).any(Registration::is_stale)
    }

    /// The pages from its first to its last.
    pub fn range(&self) -> Option<PageRange> {
        Some(self.0.first()?.range()?.hull(self.0.last()?.range()?))
    }
}

impl<P: Provider> Clone for Segments<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<'a, P: Provider> IntoIterator for &'a Segments<P> {
    type Item = &'a Segment<P>;
    type IntoIter = std::slice::Iter<'a, Segment<P>>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<P: Provider> IntoIterator for Segments<P> {
    type Item = Segment<P>;
    type IntoIter = std::vec::IntoIter<Segment<P>>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
