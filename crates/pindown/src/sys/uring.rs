//! `io_uring_register(2)`: the table of fixed buffers.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use linux_raw_sys::io_uring::{
    IORING_REGISTER_DST_REPLACE, IORING_RSRC_REGISTER_SPARSE, io_uring_clone_buffers, io_uring_params,
    io_uring_register_op, io_uring_rsrc_register, io_uring_rsrc_update2,
};
use pindown_core::PageRange;

/// Most fixed buffers a ring can have (`IORING_MAX_REG_BUFFERS`, io_uring/rsrc.c).
pub(crate) const MAX_SLOTS: u32 = 1 << 14;
/// Longest fixed buffer (`io_validate_user_buf_range`, io_uring/rsrc.c).
pub(crate) const MAX_BUFFER_BYTES: u64 = 1 << 30;

/// One `io_uring_register` call; its result.
///
/// # Safety
///
/// `arg` and `nr_args` are what `op` takes: what it points to is valid for the call.
unsafe fn register<T>(
    ring: BorrowedFd<'_>,
    op: io_uring_register_op,
    arg: *const T,
    nr_args: u32,
) -> io::Result<usize> {
    // SAFETY: the caller vouches for `arg`; the kernel checks the descriptor, the operation and the
    // count, and keeps no pointer past the call.
    let done = unsafe {
        libc::syscall(libc::SYS_io_uring_register, ring.as_raw_fd(), op as libc::c_uint, arg, nr_args)
    };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

/// A ring that is never submitted to: its queues are not mapped.
pub(crate) fn setup(entries: u32) -> io::Result<OwnedFd> {
    // SAFETY: io_uring_params is plain integers, for which zeroes are valid.
    let mut params: io_uring_params = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads and fills `params`, which lives through the call.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, &mut params) };
    match i32::try_from(ring) {
        // SAFETY: a descriptor that was just made (close-on-exec) and that nobody else owns.
        Ok(ring) if ring >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(ring) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the ring a table of `slots` empty slots (Linux 5.19).
///
/// EBUSY: it has one. EEXIST: the ring belongs to another thread. EINVAL: kernel too old.
pub(crate) fn register_sparse(ring: BorrowedFd<'_>, slots: u32) -> io::Result<()> {
    let table =
        io_uring_rsrc_register { nr: slots, flags: IORING_RSRC_REGISTER_SPARSE, resv2: 0, data: 0, tags: 0 };
    let size = size_of_val(&table) as u32;
    // SAFETY: BUFFERS2 takes one io_uring_rsrc_register and its size; sparse, so it points nowhere.
    unsafe { register(ring, io_uring_register_op::IORING_REGISTER_BUFFERS2, &table, size) }.map(drop)
}

/// Takes the whole table away.
pub(crate) fn unregister(ring: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: UNREGISTER_BUFFERS takes no argument.
    unsafe { register::<u8>(ring, io_uring_register_op::IORING_UNREGISTER_BUFFERS, ptr::null(), 0) }.map(drop)
}

/// Registers `ranges` in the slots from `first` on, each with the tag beside it if there are tags.
/// What the slots held before is let go. Returns how many of them, from the front, are registered:
/// the kernel stops at the first that fails and reports its error only if it is the very first.
///
/// # Safety
///
/// Requests through these slots read and write the pages of `ranges` behind the compiler's back, until
/// the slots are cleared: the caller answers for that, and for the slots being its own.
pub(crate) unsafe fn update(
    ring: BorrowedFd<'_>,
    first: u32,
    ranges: &[PageRange],
    tags: Option<&[u64]>,
) -> io::Result<usize> {
    debug_assert!(tags.is_none_or(|t| t.len() == ranges.len()));
    let iovec = |r: &PageRange| libc::iovec { iov_base: r.start() as *mut _, iov_len: r.len_bytes() };
    // One is the usual case, and a miss should not allocate for it.
    let (one, many);
    let iovecs: &[libc::iovec] = match ranges {
        [range] => {
            one = [iovec(range)];
            &one
        }
        _ => {
            many = ranges.iter().map(iovec).collect::<Vec<_>>();
            &many
        }
    };
    // SAFETY: the slices live through the call; the caller vouches for the ranges and slots.
    unsafe { update_iovecs(ring, first, iovecs, tags) }
}

/// Clears slot `slot`: the kernel unpins its pages when the last request that uses them is done.
///
/// # Safety
///
/// The slot is the caller's: nobody else relies on what it holds.
pub(crate) unsafe fn clear(ring: BorrowedFd<'_>, slot: u32) -> io::Result<()> {
    let nothing = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }];
    // SAFETY: an empty iovec registers no memory; the caller vouches for the slot.
    match unsafe { update_iovecs(ring, slot, &nothing, None) }? {
        1 => Ok(()),
        _ => Err(io::ErrorKind::Interrupted.into()),
    }
}

/// # Safety
///
/// As [`update`], for the memory that `iovecs` describe.
unsafe fn update_iovecs(
    ring: BorrowedFd<'_>,
    first: u32,
    iovecs: &[libc::iovec],
    tags: Option<&[u64]>,
) -> io::Result<usize> {
    let update = io_uring_rsrc_update2 {
        offset: first,
        resv: 0,
        data: iovecs.as_ptr() as u64,
        tags: tags.map_or(0, |t| t.as_ptr() as u64),
        nr: iovecs.len() as u32,
        resv2: 0,
    };
    let size = size_of_val(&update) as u32;
    // SAFETY: BUFFERS_UPDATE takes one io_uring_rsrc_update2 and its size. `data` points to `nr` iovecs and
    // `tags` to none or as many words, which the borrows keep valid through the call. The kernel
    // checks the iovecs' memory itself and fails with EFAULT; the caller vouches for its use.
    unsafe { register(ring, io_uring_register_op::IORING_REGISTER_BUFFERS_UPDATE, &update, size) }
}

/// Whether the calling thread is refused because the ring has an owner (`IORING_SETUP_SINGLE_ISSUER`).
/// Asked with an update of nothing, which every other ring refuses as invalid.
pub(crate) fn belongs_to_another_thread(ring: BorrowedFd<'_>) -> bool {
    // SAFETY: no iovec: nothing is read, registered or let go.
    let refused = unsafe { update_iovecs(ring, 0, &[], None) };
    refused.is_err_and(|e| e.raw_os_error() == Some(libc::EEXIST))
}

/// Puts `count` buffers of `from`, from slot `from_first` on, into `ring`'s slots from `first` on,
/// replacing what those held. Pages are neither pinned nor accounted again (Linux 6.13 for a part of a table).
///
/// # Safety
///
/// As [`update`]: the slots are the caller's, and it answers for the memory.
pub(crate) unsafe fn clone_buffers(
    ring: BorrowedFd<'_>,
    first: u32,
    from: BorrowedFd<'_>,
    from_first: u32,
    count: u32,
) -> io::Result<()> {
    let clone = io_uring_clone_buffers {
        src_fd: from.as_raw_fd() as u32,
        flags: IORING_REGISTER_DST_REPLACE as u32,
        src_off: from_first,
        dst_off: first,
        nr: count,
        pad: [0; 3],
    };
    // SAFETY: CLONE_BUFFERS takes one io_uring_clone_buffers, count 1; the caller vouches for the slots.
    unsafe { register(ring, io_uring_register_op::IORING_REGISTER_CLONE_BUFFERS, &clone, 1) }.map(drop)
}
