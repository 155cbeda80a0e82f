//! UFFDIO_MOVE: moves pages from one place to another (Linux 6.8).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::{Span, check};

const UFFD_USER_MODE_ONLY: i32 = 1;
const UFFD_API: u64 = 0xAA;
const FEATURE_MOVE: u64 = 1 << 16;
const REGISTER_MODE_MISSING: u64 = 1;
const UFFDIO_API: libc::c_ulong = 0xC018_AA3F;
const UFFDIO_REGISTER: libc::c_ulong = 0xC020_AA00;
const UFFDIO_MOVE: libc::c_ulong = 0xC028_AA05;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Move {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    moved: i64,
}

/// Moves the pages of `from` to `to`, which is mapped and empty. The kernel refuses pinned pages (EBUSY).
pub(crate) fn uffd_move(from: Span, to: Span) -> io::Result<()> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | UFFD_USER_MODE_ONLY;
    // SAFETY: the descriptor returned is new and owned by this value alone.
    let fd = unsafe { OwnedFd::from_raw_fd(check(libc::syscall(libc::SYS_userfaultfd, flags))? as i32) };
    let mut api = Api { api: UFFD_API, features: FEATURE_MOVE, ioctls: 0 };
    let (start, len) = (to.base() as u64, to.len_bytes() as u64);
    let mut register = Register { start, len, mode: REGISTER_MODE_MISSING, ioctls: 0 };
    let mut moved = Move { dst: start, src: from.base() as u64, len, mode: 0, moved: 0 };
    // SAFETY: each ioctl gets the structure it is defined with (linux/userfaultfd.h); what it
    // changes is two spans, which nothing else uses.
    unsafe {
        check(libc::ioctl(fd.as_raw_fd(), UFFDIO_API, &raw mut api))?;
        check(libc::ioctl(fd.as_raw_fd(), UFFDIO_REGISTER, &raw mut register))?;
        check(libc::ioctl(fd.as_raw_fd(), UFFDIO_MOVE, &raw mut moved)).map(drop)
    }
}
