//! [`Everything`]: keys for any memory of the process, with nothing registered by the caller.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use pindown::{Access, Builder, provider::sim::Sim};
//! let cache = Builder::new(Sim::new()).build()?;
//! let memory = cache.everything(Access::READ);
//! let message = vec![1u8; 100_000];
//! // SAFETY: the device only reads, and `message` is not written meanwhile.
//! for segment in &unsafe { memory.keys(message.as_ptr(), message.len()) }? {
//!     let _entry = (segment.addr(), segment.len_bytes(), segment.key());
//! }
//! # Ok(()) }
//! ```
//!
//! With a device that has a key of all memory (implicit on-demand paging) every request is one segment with
//! that key. With any other, the cache registers behind it on first use, in as few registrations as the
//! mappings allow, keeps them coherent, evicts them, and counts them: [`Cache::stats`](pindown_core::Cache::stats).

mod error;

use std::sync::OnceLock;

use pindown_core::{
    Access, AcquireError, MappingKind, PAGE_SIZE, PageRange, Provider, RegisterError, Registration,
};

pub use error::EverythingError;

use crate::cache::Cache;
use crate::segments::{Segment, Segments};
use crate::sys::process::Process;
use crate::sys::procmap::ProcMap;

/// Most segments of a request, unless the device or [`Everything::max_segments`] says otherwise: what
/// common devices take in one work request.
const SEGMENTS: usize = 16;
/// Adjacent mappings looked at for one registration.
const LOOKS: usize = 64;

/// All memory that the process has, now or later, with some rights. Costs nothing until it is used.
#[derive(Debug)]
pub struct Everything<P: Provider> {
    cache: Cache<P>,
    access: Access,
    max_segments: usize,
    longest_bytes: usize,
    process: Process,
    /// The device's key of all memory, if it has one; asked for on first use.
    implicit: OnceLock<Option<P::Key>>,
    maps: OnceLock<Option<ProcMap>>,
}

/// One or more mappings that may be registered together.
struct Found {
    range: PageRange,
    kind: MappingKind,
}

impl<P: Provider> Cache<P> {
    /// Keys for any memory, with rights `access`. See [`Everything`].
    pub fn everything(&self, access: Access) -> Everything<P> {
        let caps = self.provider().caps();
        Everything {
            cache: self.clone(),
            access,
            max_segments: SEGMENTS.min(caps.max_segments),
            longest_bytes: usize::try_from(caps.max_region_bytes).unwrap_or(usize::MAX),
            process: Process::current(),
            implicit: OnceLock::new(),
            maps: OnceLock::new(),
        }
    }
}

impl<P: Provider> Everything<P> {
    /// Most segments that one request may come to. Default 16, or what the device takes if that is less.
    pub fn max_segments(mut self, most: usize) -> Self {
        self.max_segments = most.max(1);
        self
    }

    /// Whether the device has one key of all memory. Asks it.
    pub fn is_implicit(&self) -> bool {
        self.implicit().is_some()
    }

    /// The keys of `len` bytes at `addr`, in order of addresses; held until the result is dropped.
    ///
    /// Registers what is not registered yet, split where mappings of different kinds meet and where the
    /// device's longest registration ends.
    ///
    /// # Errors
    ///
    /// See [`EverythingError`]; a mapping that cannot be registered is named. What was acquired before the
    /// error is put.
    ///
    /// # Safety
    ///
    /// As [`Cache::acquire`](pindown_core::Cache::acquire), while the result is held.
    pub unsafe fn keys(&self, addr: *const u8, len: usize) -> Result<Segments<P>, EverythingError> {
        let start = addr.expose_provenance();
        PageRange::covering(start, len)?;
        if !self.process.is_current() {
            return Err(AcquireError::Forked.into());
        }
        if let Some(key) = self.implicit() {
            return Ok(Segments::new(vec![Segment::of_everything(start, len, key)]));
        }
        if let Some(held) = self.cache.peek(addr, len, self.access) {
            return Ok(Segments::new(vec![Segment::new(start, len, held)]));
        }
        match self.registered(start, start + len) {
            Some(segments) => Ok(segments),
            None => self.register(start, start + len),
        }
    }

    fn implicit(&self) -> Option<P::Key> {
        *self.implicit.get_or_init(|| self.cache.provider().everything_key(self.access))
    }

    /// All of it from what is registered already: no system call.
    fn registered(&self, start: usize, end: usize) -> Option<Segments<P>> {
        let (mut at, mut segments) = (start, Vec::new());
        while at < end {
            if segments.len() == self.max_segments {
                return None;
            }
            let held = self.cache.peek(std::ptr::with_exposed_provenance(at), 1, self.access)?;
            at = push(&mut segments, at, end, held);
        }
        Some(Segments::new(segments))
    }

    fn register(&self, start: usize, end: usize) -> Result<Segments<P>, EverythingError> {
        let (mut at, mut segments) = (start, Vec::new());
        while at < end {
            let covered_bytes = at - start;
            if segments.len() == self.max_segments {
                return Err(EverythingError::TooManySegments { limit: self.max_segments, covered_bytes });
            }
            let found = self.mapping(at, end);
            let found = found.ok_or(EverythingError::Hole { at, offset_bytes: covered_bytes })?;
            let stop = end.min(found.range.end()).min(self.longest_from(at));
            let held = self.acquire(at, stop - at).map_err(|error| named(&found, error))?;
            at = push(&mut segments, at, end, held);
        }
        Ok(Segments::new(segments))
    }

    /// Where a registration that begins at `at` must end.
    fn longest_from(&self, at: usize) -> usize {
        let first = at & !(PAGE_SIZE - 1);
        first.saturating_add((self.longest_bytes & !(PAGE_SIZE - 1)).max(PAGE_SIZE))
    }

    fn acquire(&self, at: usize, len: usize) -> Result<Registration<P>, AcquireError> {
        let addr = std::ptr::with_exposed_provenance(at);
        // As for submissions: `keys` is unsafe with the same contract.
        crate::sys::acquire_for_submitter(&self.cache, addr, len, self.access)
    }

    /// What is mapped at `at`, and beyond as far as it is more of the same, up to `end`. `None`: a hole.
    /// Where `/proc` is not to be had, all is taken for one mapping, and the provider has the word.
    fn mapping(&self, at: usize, end: usize) -> Option<Found> {
        let whole =
            || PageRange::covering(at, end - at).map(|range| Found { range, kind: MappingKind::Anonymous });
        let Some(maps) = self.maps.get_or_init(|| ProcMap::open().ok()) else { return whole().ok() };
        let Ok(first) = maps.find_kind(at) else { return whole().ok() };
        let crate::sys::procmap::Found { vma, kind, .. } = first?;
        let mut stop = vma.end;
        for _ in 0..LOOKS {
            // The kernel keeps neighbours apart that differ in nothing that matters here.
            let same = kind == MappingKind::Anonymous && stop < end;
            let next = same.then(|| maps.find_kind(stop).ok().flatten()).flatten();
            match next.filter(|next| next.kind == kind && next.vma.perms == vma.perms) {
                Some(next) => stop = next.vma.end,
                None => break,
            }
        }
        Some(Found { range: PageRange::new(vma.start, stop).ok()?, kind })
    }
}

/// Appends what a registration serves; returns where the next begins.
fn push<P: Provider>(segments: &mut Vec<Segment<P>>, at: usize, end: usize, held: Registration<P>) -> usize {
    let stop = held.range().end().min(end);
    segments.push(Segment::new(at, stop - at, held));
    stop
}

fn named(found: &Found, error: AcquireError) -> EverythingError {
    match &error {
        AcquireError::Register(refused) if matches!(**refused, RegisterError::Unsupported { .. }) => {
            EverythingError::NotRegistrable { mapping: found.range, kind: found.kind, source: error }
        }
        _ => EverythingError::Acquire(error),
    }
}
