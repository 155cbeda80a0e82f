//! `eventfd(2)` as a stop sign, and `poll(2)` of it beside another descriptor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A flag that a poll can wait for.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call takes integers alone.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Raises it for good.
    pub(crate) fn raise(&self) {
        let one = 1u64;
        // SAFETY: reads the eight bytes of `one`.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Lowers it again. For who raises it too.
    pub(crate) fn lower(&self) {
        let mut count = 0u64;
        // SAFETY: fills the eight bytes of `count`.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Waits until `other` can be read (true, false) or the flag is raised (_, true).
    /// Neither allocates nor panics.
    pub(crate) fn wait_with(&self, other: RawFd) -> (bool, bool) {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [entry(other), entry(self.0.as_raw_fd())];
        // SAFETY: two live entries.
        unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
        (fds[0].revents != 0, fds[1].revents != 0)
    }
}
