//! [`Provider`]: whoever pins pages and hands out keys.

use std::fmt::Debug;
use std::io;

use crate::{Access, PageRange};

/// What a provider can do; read once, when the cache is built.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ProviderCaps {
    /// Most registrations that may exist at a time (slots, `max_mr`).
    pub max_regions: u64,
    /// Longest single registration, in bytes.
    pub max_region_bytes: u64,
    /// Most bytes registered at a time; `u64::MAX` when only RLIMIT_MEMLOCK and memory bound it.
    pub max_bytes: u64,
    /// The cache may register more than was asked for, to serve neighbours.
    pub may_widen: bool,
    /// Registrations follow the address space by themselves (on-demand paging):
    /// no monitor is needed, an invalidation only sheds footprint.
    pub coherent: bool,
    /// Most registrations that one request can name (verbs: `max_sge`).
    pub max_segments: usize,
    /// On how many threads at a time it is worth registering: as many as the provider makes progress on.
    pub register_threads: usize,
    /// Kernel and device memory that a registration takes for each page, in bytes, about (arrays of
    /// pages, translation tables); 0: not known.
    pub kernel_bytes_per_page: u64,
    /// The same for each registration, whatever its length.
    pub kernel_bytes_per_region: u64,
}

impl Default for ProviderCaps {
    fn default() -> Self {
        Self {
            max_regions: u64::MAX,
            max_region_bytes: u64::MAX,
            max_bytes: u64::MAX,
            may_widen: true,
            coherent: false,
            max_segments: usize::MAX,
            register_threads: 4,
            kernel_bytes_per_page: 0,
            kernel_bytes_per_region: 0,
        }
    }
}

/// From which thread a provider may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Affinity {
    /// Any thread, several at once.
    AnyThread,
    /// Only the thread that made it (an io_uring ring with `IORING_SETUP_SINGLE_ISSUER`):
    /// misses fail on other threads, and [`Cache::drive`](crate::Cache::drive) must be called on it.
    OwnerThread(std::thread::ThreadId),
}

/// Which bound a registration ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// RLIMIT_MEMLOCK or the pinned-page limit of the user (`ulimit -l`).
    Memlock,
    /// The provider's table of registrations.
    Slots,
    /// The longest single registration.
    RegionBytes,
    /// Memory, or the cgroup's.
    Memory,
}

/// Why a registration was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// A limit was hit; evicting and retrying may help.
    #[error("registering {range} hit {limit:?} ({remedy})", range = .range, limit = .limit, remedy = .remedy)]
    Limit {
        /// What was to be registered.
        range: PageRange,
        /// The bound.
        limit: Limit,
        /// Its value where known (bytes, or a count of slots).
        value: Option<u64>,
        /// What to do.
        remedy: &'static str,
        /// The call's own error.
        source: io::Error,
    },
    /// The kernel or device does not register this kind of memory (not mapped, read-only
    /// for write access, device memory, secret memory, some file mappings).
    #[error("{range} cannot be registered: {why}")]
    Unsupported {
        /// What was to be registered.
        range: PageRange,
        /// Why, and what would work.
        why: &'static str,
        /// The call's own error.
        source: io::Error,
    },
    /// A passing fault (EAGAIN, EINTR, EBUSY); a later call may succeed.
    #[error("registering {range} failed for now")]
    Busy {
        /// What was to be registered.
        range: PageRange,
        /// The call's own error.
        source: io::Error,
    },
    /// The calling thread may not use this provider ([`Affinity::OwnerThread`]).
    #[error("this provider belongs to another thread: call from the thread that made it")]
    WrongThread,
    /// The device is gone.
    #[error("the device is gone")]
    DeviceGone {
        /// The call's own error.
        source: io::Error,
    },
    /// Anything else.
    #[error("registering {range} failed")]
    Io {
        /// What was to be registered.
        range: PageRange,
        /// The call's own error.
        source: io::Error,
    },
}

impl RegisterError {
    /// Whether freeing other registrations may make a second try succeed.
    pub fn evicting_may_help(&self) -> bool {
        match self {
            Self::Limit { limit, .. } => !matches!(limit, Limit::RegionBytes),
            Self::Io { source, .. } => source.raw_os_error() == Some(12),
            _ => false,
        }
    }
}

/// A failed deregistration: the memory region comes back so that it can be retried.
#[derive(Debug)]
pub struct DeregisterFailed<M> {
    /// The region, still registered.
    pub mr: M,
    /// Why.
    pub source: io::Error,
}

/// Registers address space with a device.
///
/// The cache calls it from several threads at once (unless [`Affinity::OwnerThread`]) and never
/// while it holds a lock; calls may block.
///
/// # Safety
///
/// After `register(range, access)` returned `Ok(mr)`, the device may reach exactly the pages of
/// `range` with at most `access` through `key(&mr)`, and this stays so until `deregister(mr)`
/// returned `Ok`. The implementation must not let go of a registration in any other way: an `Mr`
/// that is dropped is leaked, not deregistered.
pub unsafe trait Provider: Send + Sync + 'static {
    /// One registration. No deregistration in `Drop`.
    type Mr: Send + Sync + Debug + 'static;
    /// What the application puts into its work request: `{lkey, rkey}`, `{buf_index, ..}`.
    type Key: Copy + Send + Sync + Debug + 'static;

    /// Name for people, e.g. `"io-uring"`.
    fn name(&self) -> &'static str;
    /// What it can do.
    fn caps(&self) -> ProviderCaps;
    /// From which threads it may be called.
    fn affinity(&self) -> Affinity {
        Affinity::AnyThread
    }
    /// The key of a registration.
    fn key(&self, mr: &Self::Mr) -> Self::Key;
    /// Pins and registers `range`. May block.
    ///
    /// # Safety
    ///
    /// The caller keeps data that the device may write (`access`) free of Rust references whose
    /// aliasing rules this would break, for as long as transfers through the key can run.
    unsafe fn register(&self, range: PageRange, access: Access) -> Result<Self::Mr, RegisterError>;
    /// Gives a registration back. On failure it comes back and will be retried.
    fn deregister(&self, mr: Self::Mr) -> Result<(), DeregisterFailed<Self::Mr>>;
    /// Whether the pages of this registration should go back at once rather than in the
    /// worker's next batch (huge pages stay taken from their pool while pinned).
    fn release_at_once(&self, mr: &Self::Mr) -> bool {
        let _ = mr;
        false
    }
    /// Has the device ready the pages of `range`, which is registered under `key`, for a transfer
    /// of this kind, and returns when it has (`ibv_advise_mr(3)`). For registrations that fault on
    /// first use.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](io::ErrorKind::Unsupported): there is nothing to ready, or no way to ask.
    fn prefetch(&self, key: Self::Key, range: PageRange, access: Access) -> io::Result<()> {
        let _ = (key, range, access);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// A key of the process's whole address space, present and future, with these rights, if the
    /// device has such a thing (implicit on-demand paging). It stays valid as long as the
    /// provider. `None`: each range is to be registered.
    fn everything_key(&self, access: Access) -> Option<Self::Key> {
        let _ = access;
        None
    }
}
