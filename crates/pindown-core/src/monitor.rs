//! [`Monitor`]: whoever sees the address space change.

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;

use crate::{Access, Notifier, PageRange};

/// What happened to a range; for the statistics and for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum EventKind {
    /// Unmapped or mapped over.
    Unmap,
    /// Moved by mremap.
    Remap,
    /// Pages given back (MADV_DONTNEED, FREE, REMOVE).
    Remove,
    /// A file lost pages (truncate, hole punch) or changed beneath a mapping.
    File,
    /// Permissions changed.
    Protect,
    /// Reported by the application.
    Manual,
    /// Found changed by a check at lookup.
    Check,
    /// Found gone by the sweep.
    Sweep,
}

impl EventKind {
    /// Number of kinds.
    pub const COUNT: usize = 8;
    /// All kinds, in order of their discriminants.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Unmap,
        Self::Remap,
        Self::Remove,
        Self::File,
        Self::Protect,
        Self::Manual,
        Self::Check,
        Self::Sweep,
    ];
    /// Name for tables and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unmap => "unmap",
            Self::Remap => "remap",
            Self::Remove => "remove",
            Self::File => "file",
            Self::Protect => "protect",
            Self::Manual => "manual",
            Self::Check => "check",
            Self::Sweep => "sweep",
        }
    }
}

/// When an event reaches the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// Before the changing call returns.
    BeforeReturn,
    /// Found by asking at each lookup ([`Monitor::validate`]).
    OnDemand,
    /// When the application says so.
    WhenTold,
}

/// A kind of mapping, as coverage is declared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MappingKind {
    /// Private anonymous memory, stacks, the brk heap.
    Anonymous,
    /// Shared memory without a name a file descriptor is open for (shared anonymous, SysV).
    SharedAnonymous,
    /// memfd or tmpfs file, shared.
    Shmem,
    /// Huge pages.
    Hugetlb,
    /// A file, mapped private.
    PrivateFile,
    /// A file, mapped shared.
    SharedFile,
    /// Device memory and what else has no pages to pin.
    Special,
}

/// How one kind of mapping is covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cover {
    /// Every event is seen.
    Full,
    /// Every event is seen but those named, which the application must not do to registered memory.
    Waived(&'static [&'static str]),
    /// Covered under a condition (named), else not cached.
    If(&'static str),
    /// Not covered: registered, used, deregistered.
    No(&'static str),
}

/// What a monitor sees, by kind of mapping.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// One row a kind; a kind without a row is not covered.
    pub rows: Vec<(MappingKind, Cover)>,
}

impl Coverage {
    /// The row of `kind`.
    pub fn of(&self, kind: MappingKind) -> Cover {
        let row = self.rows.iter().find(|(k, _)| *k == kind);
        row.map_or(Cover::No("this monitor does not see changes of such mappings"), |r| r.1)
    }

    /// Names of all waived events.
    pub fn waived(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self
            .rows
            .iter()
            .filter_map(|(_, c)| match c {
                Cover::Waived(names) => Some(names.iter().copied()),
                _ => None,
            })
            .flatten()
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// What a monitor remembers of a range that must be checked at each lookup (e.g. a file's
/// identity and ctime). The words mean something to the monitor alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stamp(pub [u64; 4]);

/// The answer to [`Monitor::subscribe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subscription {
    /// Every change from now on is reported: cache it.
    Events,
    /// Changes are reported or visible to [`Monitor::validate`] with this stamp: cache it,
    /// and ask at every lookup.
    Checked(Stamp),
    /// Cannot be covered (or not yet): register, use, deregister.
    Uncacheable(&'static str),
}

/// The answer to [`Monitor::validate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Nothing changed.
    Valid,
    /// Something did, or may have.
    Changed,
}

/// The answer to [`Monitor::drain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Every event up to this value of the generation word was handed to the notifier.
    UpTo(u64),
    /// Events may be missing: everything is stale. The word's value from before the look.
    Lost(u64),
}

/// Why a monitor does not start, or cannot watch a range.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// The kernel lacks what it needs.
    #[error("{what} is not available: {remedy}")]
    Unavailable {
        /// The facility.
        what: &'static str,
        /// How to get it.
        remedy: &'static str,
        /// The refusing call's error, if a call refused.
        source: Option<io::Error>,
    },
    /// A start-up self-test did not see an event.
    #[error("the self-test did not see {event}: not starting, since registrations would go stale")]
    SelfTest {
        /// Name of the event or hook.
        event: String,
    },
    /// Something else watches the range (another userfaultfd): EBUSY.
    #[error("{range} is watched by another userfaultfd user")]
    Conflict {
        /// The range.
        range: PageRange,
    },
    /// After fork: a child builds a cache of its own.
    #[error("this monitor belongs to the parent process: build a new cache after fork")]
    Forked,
    /// Any other failed call.
    #[error("{what} failed")]
    Io {
        /// The call.
        what: &'static str,
        /// Its error.
        source: io::Error,
    },
}

/// Sees changes of address space and reports them to a [`Notifier`]. Object-safe.
///
/// The contract that the guarantee rests on: once a change of a subscribed range has completed (its
/// call returned), a lookup that starts later finds either the notifier's or the monitor's own
/// generation word moved (or odd), or [`validate`](Self::validate) says
/// [`Changed`](Validity::Changed). A change that completes between `subscribe` and the end of the
/// registration counts: `subscribe` comes first.
pub trait Monitor: Send + Sync + Debug + 'static {
    /// Name for people, e.g. `"uffd"`.
    fn name(&self) -> &'static str;
    /// What it sees.
    fn coverage(&self) -> Coverage;
    /// When it is seen.
    fn delivery(&self) -> Delivery;
    /// A generation word outside this process's control (mapped from the kernel) that moves with
    /// each event, and never back; a lookup compares it. `None`: the notifier's own word is all there is.
    fn generation(&self) -> Option<&AtomicU64> {
        None
    }
    /// Hands over all events up to some value of [`generation`](Self::generation). Called with the
    /// cache's lock held, so it must not allocate, block on a lock, or call the cache.
    fn drain(&self, notifier: &Notifier) -> Drained {
        let _ = notifier;
        Drained::UpTo(0)
    }
    /// A descriptor that is readable while events wait for [`drain`](Self::drain). `None`: events reach
    /// the notifier by themselves.
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Begins. Called once, before any subscription.
    fn start(&self, notifier: Notifier) -> Result<(), MonitorError>;
    /// Begins to watch `range`, which is about to be registered for `access`. No lock is held.
    fn subscribe(&self, range: PageRange, access: Access) -> Result<Subscription, MonitorError>;
    /// A registration of `range` is gone, or never came to be; other registrations may still cover
    /// its pages. Called once for each [`subscribe`](Self::subscribe) that returned `Ok`, with the
    /// same range. No lock is held.
    fn unsubscribe(&self, range: PageRange) {
        let _ = range;
    }
    /// Whether a range subscribed as [`Subscription::Checked`] is unchanged since. No lock is held.
    fn validate(&self, range: PageRange, stamp: Stamp) -> Validity {
        let _ = (range, stamp);
        Validity::Valid
    }
    /// Whether each lookup must call [`settle`](Self::settle) before it compares generations.
    fn must_settle(&self) -> bool {
        false
    }
    /// Makes sure that every change whose *effect* another thread may have seen is in the
    /// generation word, though the changing call has not returned yet: while one thread is in
    /// munmap and its event is on the way, the kernel may give the address to another thread's
    /// mmap, and that thread must not find the old registration. Called with no lock held, before
    /// the generation is compared. `false`: not so within a bounded wait; nothing that is cached
    /// may be used now, neither by a lookup nor by an acquire (which registers for single use).
    fn settle(&self) -> bool {
        true
    }
    /// Ends; no event is reported after it returned. Idempotent.
    fn stop(&self);
}
