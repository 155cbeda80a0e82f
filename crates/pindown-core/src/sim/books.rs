//! [`Books`]: what was registered, and what was done wrong.

use crate::PageRange;

/// Totals of a [`Sim`](super::Sim) at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Books {
    /// Successful registrations.
    pub registered: u64,
    /// Successful deregistrations.
    pub deregistered: u64,
    /// Failed registrations, panics included.
    pub register_failures: u64,
    /// Failed deregistrations, panics included.
    pub deregister_failures: u64,
    /// Registrations alive.
    pub live: u64,
    /// Their bytes; pages registered twice count twice.
    pub live_bytes: u64,
    /// Most registrations alive at a time.
    pub live_peak: u64,
    /// Most bytes alive at a time.
    pub live_bytes_peak: u64,
    /// What broke a contract.
    pub violations: Vec<Violation>,
}

/// A use that a device would answer with an error at best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A region was deregistered a second time.
    #[error("registration {id} was deregistered twice")]
    DeregisteredTwice {
        /// Its number.
        id: u64,
    },
    /// A key was used after its registration was given back.
    #[error("the key of registration {id} was used after its deregistration")]
    UsedAfterDeregistration {
        /// Its number.
        id: u64,
    },
    /// A page outside the registration was asked for.
    #[error("page {page:#x} is not in registration {id} of {range}")]
    OutOfRange {
        /// The registration's number.
        id: u64,
        /// Its pages.
        range: PageRange,
        /// The page.
        page: u64,
    },
    /// A write through a key without write access.
    #[error("registration {id} has no write access")]
    NotWritable {
        /// Its number.
        id: u64,
    },
}

impl Books {
    pub(super) fn register(&mut self, range: PageRange) {
        self.registered += 1;
        self.live += 1;
        self.live_bytes += range.len_bytes() as u64;
        self.live_peak = self.live_peak.max(self.live);
        self.live_bytes_peak = self.live_bytes_peak.max(self.live_bytes);
    }

    pub(super) fn deregister(&mut self, range: PageRange) {
        self.deregistered += 1;
        self.live -= 1;
        self.live_bytes -= range.len_bytes() as u64;
    }

    /// Whether each registration is either alive or was given back once, and nothing was misused.
    pub fn balanced(&self) -> bool {
        self.registered == self.deregistered + self.live && self.violations.is_empty()
    }

    /// Whether everything was given back, on top of [`balanced`](Self::balanced).
    pub fn closed(&self) -> bool {
        self.balanced() && self.live == 0 && self.live_bytes == 0
    }
}
