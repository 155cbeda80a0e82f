//! One entry through a ring of our own.

use std::io;

use io_uring::IoUring;
use io_uring::squeue::Entry;

/// Submits `entry`, which refers to no memory, and does not wait for its completion.
pub(crate) fn send(ring: &mut IoUring, entry: &Entry) -> io::Result<()> {
    // SAFETY: by this function's contract the entry refers to no memory (MSG_RING carries values).
    let pushed = unsafe { ring.submission().push(entry) };
    pushed.map_err(|_| io::Error::from_raw_os_error(libc::EBUSY))?;
    ring.submit().map(drop)
}
