//! [`UringProvider`]: registers memory as fixed buffers of an io_uring (Linux 5.19).
//!
//! The provider works on a ring that the application has and keeps submitting to. It owns a range of slots
//! of the ring's table of fixed buffers; an [`UringKey`] names the slot and the addresses it stands for.
//!
//! ```
//! use io_uring::{IoUring, types};
//! use pindown::provider::io_uring::UringProvider;
//! use pindown::{Access, PageRange, Provider};
//!
//! let mut ring = IoUring::new(8)?;
//! let provider = UringProvider::new(&ring)?;
//! let data = vec![7u8; 100_000];
//! let range = PageRange::covering(data.as_ptr().addr(), data.len())?;
//! // SAFETY: nothing reads into the buffer, it is only sent from.
//! let mr = unsafe { provider.register(range, Access::READ) }?;
//! let key = provider.key(&mr);
//!
//! let null = std::fs::File::create("/dev/null")?;
//! let fd = types::Fd(std::os::fd::AsRawFd::as_raw_fd(&null));
//! let write = key.write_fixed(fd, data.as_ptr(), data.len())?.build();
//! // SAFETY: `data` outlives the request, which is waited for.
//! unsafe { ring.submission().push(&write) }?;
//! ring.submit_and_wait(1)?;
//! assert_eq!(ring.completion().next().unwrap().result(), 100_000);
//!
//! provider.deregister(mr).unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! (A [`Cache`](pindown_core::Cache) makes the calls in the middle, and spares them when it can.)
//!
//! # What io_uring registers
//!
//! - The kernel pins each page **for writing** and for long, whatever the access asked for (`FOLL_WRITE |
//!   FOLL_LONGTERM` in `io_pin_pages()`, io_uring/memmap.c): a private page that was never written is
//!   allocated, one that is shared after fork is copied, and read-only mappings are refused even for
//!   [`Access::READ`]. Shared mappings of files on a disk, device memory and memfd_secret are refused too.
//!   All of this is [`RegisterError::Unsupported`].
//! - A fixed buffer has no permissions: a key that was registered for [`Access::READ`] can be used in a
//!   READ_FIXED by the process itself. There are no peers, so `REMOTE_*` grant nothing.
//! - At most 16384 buffers a ring, 1 GiB each. Unless the process has CAP_IPC_LOCK its pages count towards
//!   RLIMIT_MEMLOCK, for all rings of the user together; a page of a huge page counts the whole huge page,
//!   once a ring.
//! - Clearing a slot is the deregistration. Requests under way keep the pages pinned until they are done, see
//!   [`UringBuilder::release_tags`].
//!
//! # Threads
//!
//! Any thread may register while others submit. The kernel lets nobody submit to a ring, or register in it,
//! while it pins; ranges of 64 MiB and more are therefore pinned on a ring of the provider's own and then
//! handed over (Linux 6.13), so that several threads register long ranges in parallel and the application's
//! ring stays free. A ring with `IORING_SETUP_SINGLE_ISSUER` (and so every `DEFER_TASKRUN` ring) accepts
//! calls from one thread only. The provider finds out and declares [`Affinity::OwnerThread`]: misses on
//! other threads fail with [`RegisterError::WrongThread`] (hits work anywhere), and deregistrations happen
//! when that thread calls [`Cache::drive`](pindown_core::Cache::drive), so "within 10 ms" becomes "at its
//! next drive".
//!
//! # After fork
//!
//! The child has the same ring, and an update by it would replace the parent's buffers. The provider
//! refuses to register there, and a deregistration there succeeds without touching the ring: the buffer is
//! the parent's.

mod builder;
mod helpers;
mod key;
mod mappings;
mod mover;
mod refusal;
mod requests;
mod slots;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use pindown_core::{Access, Affinity, DeregisterFailed, PageRange, Provider, ProviderCaps, RegisterError};

pub use self::builder::{UringBuilder, UringError};
use self::helpers::Helpers;
pub use self::key::{UringKey, UringMr};
use self::mappings::Mappings;
pub use self::mover::Mover;
pub use self::requests::RequestError;
use self::slots::Slots;
use crate::sys::process::Process;
use crate::sys::uring;

/// Registers memory as fixed buffers of one ring. See the [module](self).
#[derive(Debug)]
pub struct UringProvider {
    /// A duplicate: the ring lives at least as long.
    ring: OwnedFd,
    slots: Slots,
    affinity: Affinity,
    table: Table,
    release_tags: Option<u64>,
    process: Process,
    mappings: Mappings,
    helpers: Helpers,
    /// Processors, asked for once: the answer comes from files.
    threads: usize,
}

/// Whose the table of buffers is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    /// Made here, all slots ours.
    Own,
    /// The application has slots in it.
    Shared,
}

impl UringProvider {
    /// Slots of a table unless [`UringBuilder::slots`] says otherwise.
    ///
    /// Not the most there can be, because the kernel looks through the whole table for each huge page it
    /// accounts (`headpage_already_acct()`, io_uring/rsrc.c): on Linux 6.18, registering and clearing 64
    /// KiB of a huge page took 1.9 µs with 256 slots, 3.2 with 1024, 7.9 with 4096 and 21 with 16384; of
    /// small pages 2.7 µs with any.
    pub const DEFAULT_SLOTS: u32 = 1024;

    /// A provider over `ring` with a new table of [`DEFAULT_SLOTS`](Self::DEFAULT_SLOTS) slots, all for the
    /// cache.
    ///
    /// # Errors
    ///
    /// See [`UringError`].
    pub fn new(ring: impl AsFd) -> Result<Self, UringError> {
        Self::builder().on(ring)
    }

    /// Settings, then [`UringBuilder::on`] a ring.
    pub fn builder() -> UringBuilder {
        UringBuilder::new()
    }

    /// How many buffers are registered now.
    pub fn registered(&self) -> u32 {
        self.slots.live()
    }

    /// The slot that a completion with `user_data` announces as released, if it carries one of the
    /// [release tags](UringBuilder::release_tags).
    pub fn released_slot(&self, user_data: u64) -> Option<u16> {
        let slot = user_data.wrapping_sub(self.release_tags?);
        u16::try_from(slot).ok().filter(|slot| self.slots.contains(*slot))
    }

    /// Registers each of `ranges`, with one call to the kernel where a run of slots is free. Returns what was
    /// registered, in order, and the error of the first range that was not, if one was not.
    ///
    /// # Safety
    ///
    /// As [`Provider::register`], for every range.
    pub unsafe fn register_batch(
        &self,
        ranges: &[PageRange],
        access: Access,
    ) -> (Vec<UringMr>, Option<RegisterError>) {
        let mut mrs = Vec::with_capacity(ranges.len());
        // The kernel registers a prefix; asking again from there gets the next one's own error.
        while let Some(rest) = ranges.get(mrs.len()..).filter(|rest| !rest.is_empty()) {
            // SAFETY: the caller vouches for every range.
            match unsafe { self.register_prefix(rest, access) } {
                Ok(prefix) => mrs.extend(prefix),
                Err(error) => return (mrs, Some(error)),
            }
        }
        (mrs, None)
    }

    /// Registers at least the first of `ranges`, or says why not.
    ///
    /// # Safety
    ///
    /// As [`Provider::register`], for every range.
    unsafe fn register_prefix(&self, ranges: &[PageRange], _: Access) -> Result<Vec<UringMr>, RegisterError> {
        let fitting = ranges.iter().take_while(|r| r.len_bytes() as u64 <= uring::MAX_BUFFER_BYTES).count();
        let wanted = fitting.min(self.slots.count() as usize);
        let Some(&range) = ranges.first() else { return Ok(Vec::new()) };
        self.admit(range)?;
        let (slot, count) =
            self.take_slots(wanted as u32).ok_or_else(|| refusal::no_slot(range, self.slots.count()))?;
        // SAFETY: the caller vouches for the memory; the slots are ours and free.
        let done = unsafe { self.update(slot, &ranges[..count as usize]) };
        let kept = *done.as_ref().unwrap_or(&0) as u32;
        self.slots.put(slot + kept as u16, count - kept);
        match done {
            Ok(0) => Err(refusal::stopped_short(range)),
            Ok(_) => Ok((0..kept as u16).map(|i| self.mr(slot + i, ranges[usize::from(i)])).collect()),
            Err(error) => Err(refusal::explain(range, error, &self.mappings)),
        }
    }

    /// Up to `wanted` slots in a row, halving while there is no such run.
    fn take_slots(&self, wanted: u32) -> Option<(u16, u32)> {
        let mut count = wanted;
        while count > 0 {
            if let Some(slot) = self.slots.take(count) {
                return Some((slot, count));
            }
            count /= 2;
        }
        None
    }

    /// Whether this thread of this process may register `range` at all.
    fn admit(&self, range: PageRange) -> Result<(), RegisterError> {
        if range.len_bytes() as u64 > uring::MAX_BUFFER_BYTES {
            return Err(refusal::too_long(range));
        }
        if !self.process.is_current() {
            return Err(refusal::forked(range));
        }
        match self.on_allowed_thread() {
            true => Ok(()),
            false => Err(RegisterError::WrongThread),
        }
    }

    fn on_allowed_thread(&self) -> bool {
        match self.affinity {
            Affinity::OwnerThread(owner) => owner == thread::current().id(),
            _ => true,
        }
    }

    /// # Safety
    ///
    /// As [`uring::update`].
    unsafe fn update(&self, slot: u16, ranges: &[PageRange]) -> io::Result<usize> {
        let tags = self.release_tags.map(|base| {
            (0..ranges.len() as u64).map(|i| base.wrapping_add(u64::from(slot) + i)).collect::<Vec<_>>()
        });
        // SAFETY: passed on to the caller.
        unsafe { uring::update(self.ring.as_fd(), u32::from(slot), ranges, tags.as_deref()) }
    }

    /// Registers one range, with a helper if it is long. A clone has no tag, so tags do without.
    ///
    /// # Safety
    ///
    /// As [`uring::update`].
    unsafe fn fill(&self, slot: u16, range: PageRange) -> io::Result<usize> {
        if self.release_tags.is_none() {
            // SAFETY: passed on to the caller.
            if let Some(()) = unsafe { self.helpers.register(self.ring.as_fd(), slot, range) } {
                return Ok(1);
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.update(slot, &[range]) }
    }

    fn mr(&self, slot: u16, range: PageRange) -> UringMr {
        UringMr { key: UringKey::new(slot, range), hugetlb: self.mappings.has_hugetlb(range) }
    }
}

// SAFETY: `register` returns Ok only when the kernel reported the slot as filled with the iovec of exactly
// `range` (or with a clone of a helper's buffer that was), whose pages the kernel then holds pinned until
// the slot is cleared, replaced, or the ring is gone; a fixed buffer gives no rights to anyone but requests
// on this ring. Slots are handed out once (`Slots`), the table's part is ours (made here with `first..end`
// for us, or vouched for in `existing_table`), so nothing else clears or replaces it; our duplicate of the
// descriptor keeps the ring alive; `UringMr` has no `Drop`, and the table is unregistered only when no slot
// is taken. In a forked child, where memory is a copy, the ring is not touched.
unsafe impl Provider for UringProvider {
    type Mr = UringMr;
    type Key = UringKey;

    fn name(&self) -> &'static str {
        "io-uring"
    }

    fn caps(&self) -> ProviderCaps {
        let mut caps = ProviderCaps::default();
        caps.max_regions = u64::from(self.slots.count());
        caps.max_region_bytes = uring::MAX_BUFFER_BYTES;
        // Pinning is work for the processor; short ranges take turns at the ring besides.
        caps.register_threads = self.threads;
        crate::budget::kernel_memory::IO_URING.tell(&mut caps);
        caps
    }

    fn affinity(&self) -> Affinity {
        self.affinity
    }

    fn key(&self, mr: &UringMr) -> UringKey {
        mr.key
    }

    unsafe fn register(&self, range: PageRange, _: Access) -> Result<UringMr, RegisterError> {
        self.admit(range)?;
        let slot = self.slots.take(1).ok_or_else(|| refusal::no_slot(range, self.slots.count()))?;
        // SAFETY: the caller vouches for the memory; the slot is ours and free.
        match unsafe { self.fill(slot, range) } {
            Ok(1) => Ok(self.mr(slot, range)),
            failed => {
                self.slots.put(slot, 1);
                Err(failed.map_or_else(
                    |e| refusal::explain(range, e, &self.mappings),
                    |_| refusal::stopped_short(range),
                ))
            }
        }
    }

    fn deregister(&self, mr: UringMr) -> Result<(), DeregisterFailed<UringMr>> {
        if !self.process.is_current() {
            return Ok(());
        }
        if !self.on_allowed_thread() {
            return Err(DeregisterFailed { mr, source: io::Error::from_raw_os_error(libc::EEXIST) });
        }
        let slot = mr.key.buf_index();
        // SAFETY: the slot is ours, and `mr` was the only registration in it.
        match unsafe { uring::clear(self.ring.as_fd(), u32::from(slot)) } {
            Ok(()) => {
                self.slots.put(slot, 1);
                Ok(())
            }
            Err(source) => Err(DeregisterFailed { mr, source }),
        }
    }

    fn release_at_once(&self, mr: &UringMr) -> bool {
        mr.hugetlb
    }
}

impl AsFd for UringProvider {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl Drop for UringProvider {
    /// Leaves the ring as it was found, if nothing is registered: another provider can then be built on it.
    fn drop(&mut self) {
        if self.table == Table::Own && self.slots.live() == 0 && self.process.is_current() {
            // Refused on a thread that does not own the ring: the empty table then stays.
            let _ = uring::unregister(self.ring.as_fd());
        }
    }
}
