//! [`EverythingError`].

use pindown_core::{AcquireError, MappingKind, PageRange, RangeError};

/// Why a request could not be given keys.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EverythingError {
    /// The request is no range of this address space.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// Nothing is mapped there.
    #[error("nothing is mapped at {at:#x}, {offset_bytes} bytes into the request")]
    Hole {
        /// The first address without a mapping.
        at: usize,
        /// Its distance from the request's start.
        offset_bytes: usize,
    },
    /// The device or kernel does not register one of the mappings.
    #[error("the mapping {mapping} ({kind:?}) cannot be registered: {source}")]
    NotRegistrable {
        /// All of the mapping.
        mapping: PageRange,
        /// What kind of memory it is.
        kind: MappingKind,
        /// Why, and what would work.
        source: AcquireError,
    },
    /// The request lies in more pieces than one transfer may name.
    #[error(
        "the request's first {covered_bytes} bytes take {limit} registrations, which is all that one transfer \
         may name: transfer them first, or raise `max_segments` if the transfers are split anyway"
    )]
    TooManySegments {
        /// The bound in force.
        limit: usize,
        /// How long a request from the same address may be.
        covered_bytes: usize,
    },
    /// The registration failed for another reason.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
}
