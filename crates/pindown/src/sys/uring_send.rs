//! One entry through a ring of our own, waited for.

use std::io;

use io_uring::IoUring;
use io_uring::squeue::Entry;

/// Submits `entry`, which refers to no memory, and returns its result.
pub(crate) fn send_one(ring: &mut IoUring, entry: &Entry) -> io::Result<()> {
    // SAFETY: by this function's contract the entry refers to no memory (MSG_RING carries values).
    let pushed = unsafe { ring.submission().push(entry) };
    pushed.map_err(|_| io::Error::from_raw_os_error(libc::EBUSY))?;
    ring.submit_and_wait(1)?;
    let result = ring.completion().next().map_or(-libc::EAGAIN, |c| c.result());
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}
