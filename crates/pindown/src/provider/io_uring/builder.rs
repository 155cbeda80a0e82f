//! [`UringBuilder`]: a provider over a ring that the application has.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use pindown_core::Affinity;

use super::helpers::Helpers;
use super::mappings::Mappings;
use super::slots::Slots;
use super::{Table, UringProvider};
use crate::sys::process::Process;
use crate::sys::uring;

/// Why a provider cannot be built over a ring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UringError {
    /// The kernel has no sparse tables.
    #[error("the ring cannot have a sparse table of buffers: needs Linux 5.19 or later")]
    NoSparseTable(#[source] io::Error),
    /// The ring has a table already.
    #[error(
        "the ring has a table of fixed buffers already: build the provider before registering buffers and \
         reserve slots for them with `application_slots`, or give it slots of the table with `existing_table`"
    )]
    TableExists(#[source] io::Error),
    /// A `IORING_SETUP_SINGLE_ISSUER` ring of another thread.
    #[error(
        "the ring belongs to another thread (IORING_SETUP_SINGLE_ISSUER): build the provider on that thread"
    )]
    WrongThread,
    /// The slots asked for are none, too many, or not in the table.
    #[error(
        "slots {first}..{end}: a provider needs at least one, inside the ring's table of at most {max}",
        max = uring::MAX_SLOTS
    )]
    Slots {
        /// First slot for the cache.
        first: u32,
        /// First slot past them.
        end: u32,
    },
    /// The ring's restrictions or the process's seccomp filter forbid it.
    #[error(
        "registering buffers is forbidden: allow IORING_REGISTER_BUFFERS2 and IORING_REGISTER_BUFFERS_UPDATE \
         (io_uring_register(2), IORING_REGISTER_RESTRICTIONS; container seccomp profile)"
    )]
    Forbidden(#[source] io::Error),
    /// Any other failed call.
    #[error("{what} failed")]
    Io {
        /// The call.
        what: &'static str,
        /// Its error.
        source: io::Error,
    },
}

/// Settings of a [`UringProvider`].
///
/// ```no_run
/// # use pindown::provider::io_uring::UringProvider;
/// # let ring = io_uring::IoUring::new(64)?;
/// // Slots 0..16 stay the application's own; the cache takes 16..4096.
/// let provider = UringProvider::builder().slots(4096).application_slots(16).on(&ring)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct UringBuilder {
    slots: u32,
    application_slots: u32,
    existing: bool,
    release_tags: Option<u64>,
}

impl UringBuilder {
    pub(super) fn new() -> Self {
        Self {
            slots: UringProvider::DEFAULT_SLOTS,
            application_slots: 0,
            existing: false,
            release_tags: None,
        }
    }

    /// Size of the ring's table, the application's slots included. At most 16384; default
    /// [`UringProvider::DEFAULT_SLOTS`], where it says what more of them cost.
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    /// Leaves slots `0..count` to the application, which fills them with
    /// `IORING_REGISTER_BUFFERS_UPDATE` as it likes. Default 0.
    pub fn application_slots(mut self, count: u32) -> Self {
        self.application_slots = count;
        self
    }

    /// Uses slots `application_slots..slots` of a table that the ring has already, instead of making one.
    ///
    /// # Safety
    ///
    /// Those slots are empty, and nobody but the provider fills or clears them, nor unregisters
    /// the table, for as long as the provider or a registration of it exists: whoever did would
    /// turn the cache's keys into keys of other memory.
    pub unsafe fn existing_table(mut self) -> Self {
        self.existing = true;
        self
    }

    /// Asks for a completion on the ring for each buffer that the kernel has let go of, with
    /// `user_data = base + buf_index`, result 0; [`UringProvider::released_slot`] recognises them.
    ///
    /// Clearing a slot keeps new requests out, but the pages stay pinned (and charged to RLIMIT_MEMLOCK)
    /// until requests that were already under way are done; before Linux 6.13 also until earlier requests
    /// of the ring are. The tag's completion is the news of that. It takes room in the application's
    /// completion queue and the application must be ready to see it, so it is off by default. `base` must
    /// not be 0 (the kernel's "no tag").
    pub fn release_tags(mut self, base: u64) -> Self {
        self.release_tags = Some(base).filter(|base| *base != 0);
        self
    }

    /// Builds the provider over `ring`: `&IoUring` of the `io-uring` crate, or any `AsFd`.
    ///
    /// The provider keeps a duplicate of the descriptor: the ring, and what is pinned in it, lives until both
    /// are gone. A ring with `IORING_SETUP_SINGLE_ISSUER` is recognised, and then belongs to the calling thread
    /// ([`Affinity::OwnerThread`]); if it is created disabled, enable it first.
    ///
    /// # Errors
    ///
    /// See [`UringError`].
    pub fn on(&self, ring: impl AsFd) -> Result<UringProvider, UringError> {
        let (first, end) = (self.application_slots, self.slots);
        if first >= end || end > uring::MAX_SLOTS {
            return Err(UringError::Slots { first, end });
        }
        let ring = duplicate(ring.as_fd())?;
        if uring::belongs_to_another_thread(ring.as_fd()) {
            return Err(UringError::WrongThread);
        }
        let affinity = affinity_of(ring.as_fd())?;
        self.table(ring.as_fd())?;
        Ok(UringProvider {
            ring,
            slots: Slots::new(first, end - first),
            affinity,
            table: if self.existing || first > 0 { Table::Shared } else { Table::Own },
            release_tags: self.release_tags,
            process: Process::current(),
            mappings: Mappings::open(),
            helpers: Helpers::default(),
            threads: std::thread::available_parallelism().map_or(2, |n| n.get()).clamp(2, 8),
        })
    }

    fn table(&self, ring: BorrowedFd<'_>) -> Result<(), UringError> {
        if !self.existing {
            return uring::register_sparse(ring, self.slots).map_err(refused_table);
        }
        // Clearing the last slot, which is empty, tells whether the table reaches it.
        // SAFETY: `existing_table`'s caller vouched that the slot is ours.
        let last = unsafe { uring::clear(ring, self.slots - 1) };
        last.map_err(|source| match source.raw_os_error() {
            Some(libc::EINVAL | libc::ENXIO) => {
                UringError::Slots { first: self.application_slots, end: self.slots }
            }
            _ => refused_table(source),
        })
    }
}

fn duplicate(ring: BorrowedFd<'_>) -> Result<OwnedFd, UringError> {
    ring.try_clone_to_owned()
        .map_err(|source| UringError::Io { what: "duplicating the ring's descriptor", source })
}

/// Asks from a thread that is certainly not the owner.
fn affinity_of(ring: BorrowedFd<'_>) -> Result<Affinity, UringError> {
    let owned = thread::scope(|scope| {
        let asker = thread::Builder::new().name("pindown-probe".into());
        let asker = asker.spawn_scoped(scope, || uring::belongs_to_another_thread(ring));
        asker.map(|thread| thread.join().expect("asking does not panic"))
    });
    match owned {
        Ok(true) => Ok(Affinity::OwnerThread(thread::current().id())),
        Ok(false) => Ok(Affinity::AnyThread),
        Err(source) => Err(UringError::Io { what: "starting a thread", source }),
    }
}

fn refused_table(source: io::Error) -> UringError {
    match source.raw_os_error() {
        Some(libc::EBUSY) => UringError::TableExists(source),
        Some(libc::EEXIST) => UringError::WrongThread,
        Some(libc::EINVAL) => UringError::NoSparseTable(source),
        Some(libc::EACCES | libc::EPERM | libc::ENOSYS) => UringError::Forbidden(source),
        _ => UringError::Io { what: "io_uring_register(2)", source },
    }
}
