//! Errors of the cache: one enum an operation.

use std::sync::Arc;
use std::time::Duration;

use crate::{MonitorError, PageRange, RangeError, RegisterError};

/// Why a cache could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The monitor does not start.
    #[error("the monitor {name} does not start")]
    Monitor {
        /// Its name.
        name: &'static str,
        /// Why.
        source: MonitorError,
    },
    /// A setting makes no sense.
    #[error("{what}")]
    Config {
        /// Which, and what to do.
        what: &'static str,
    },
}

/// Why a range could not be acquired. Cloned for everyone who waited for the same registration.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The request is no range of this address space.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// The provider refused.
    #[error("{0}")]
    Register(Arc<RegisterError>),
    /// The budget has no room, and what fills it is held.
    #[error(
        "no room for {needed_bytes} bytes: {charged_bytes} of {max_bytes} bytes and {charged_regions} of \
         {max_regions} regions are registered, and those that could go are held; put registrations or raise \
         max_bytes / max_regions"
    )]
    Budget {
        /// Length of the registration that has no room.
        needed_bytes: u64,
        /// Bytes registered now.
        charged_bytes: u64,
        /// The bound.
        max_bytes: u64,
        /// Regions registered now.
        charged_regions: u64,
        /// The bound.
        max_regions: u64,
    },
    /// Longer than one registration can be.
    #[error("{range} is longer than one registration can be ({max_region_bytes} bytes): split it")]
    TooLong {
        /// The request.
        range: PageRange,
        /// The provider's bound.
        max_region_bytes: u64,
    },
    /// The thread that was registering this range panicked in the provider or monitor.
    #[error("the registration panicked on the thread that was making it")]
    Panicked,
    /// This process was forked: the parent's registrations are not the child's.
    #[error("this cache belongs to the parent process: build a new one after fork")]
    Forked,
    /// [`Cache::close`](crate::Cache::close) was called.
    #[error("the cache is closed")]
    Closed,
}

impl From<RegisterError> for AcquireError {
    fn from(error: RegisterError) -> Self {
        Self::Register(Arc::new(error))
    }
}

/// Why [`Cache::flush`](crate::Cache::flush) returned with registrations left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlushError {
    /// Somebody holds registrations in the range.
    #[error("{} registrations in the range are held: put them, then flush again", held.len())]
    Held {
        /// Their ranges.
        held: Vec<PageRange>,
    },
    /// Deregistrations fail; they are being retried.
    #[error("{failing} deregistrations fail and are being retried")]
    Failing {
        /// How many.
        failing: usize,
    },
    /// The provider belongs to another thread, which must call [`Cache::drive`](crate::Cache::drive).
    #[error("this provider belongs to another thread: flush on the thread that made it")]
    WrongThread,
    /// As [`AcquireError::Forked`].
    #[error("this cache belongs to the parent process")]
    Forked,
}

/// Why [`Cache::close`](crate::Cache::close) left registrations behind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// Time is up. Those held are deregistered when they are put, if a worker runs.
    #[error("after {waited:?} {regions} registrations ({bytes} bytes) are still held or fail to deregister")]
    Left {
        /// How long it waited.
        waited: Duration,
        /// Registrations left.
        regions: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// As [`AcquireError::Forked`].
    #[error("this cache belongs to the parent process")]
    Forked,
}
