//! Putting requests into an `io_uring::IoUring`.

use std::io;

use io_uring::{IoUring, squeue};

/// Appends `request`; submits what is queued first if the queue is full.
///
/// # Safety
///
/// What the request points to stays valid, and free for the kernel's accesses, until its completion was seen.
pub(crate) unsafe fn push(ring: &mut IoUring, request: &squeue::Entry) -> io::Result<()> {
    // SAFETY: passed on to the caller.
    if unsafe { ring.submission().push(request) }.is_ok() {
        return Ok(());
    }
    ring.submit()?;
    // SAFETY: as above. Room is certain after a submission that took all.
    unsafe { ring.submission().push(request) }.map_err(|_| io::ErrorKind::WouldBlock.into())
}
