//! A plain io_uring: the pinning device that shows what is really pinned.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, squeue, types};

use super::Span;

/// A ring that does one thing at a time.
pub(crate) struct Ring(IoUring);

impl Ring {
    /// With a sparse table of fixed buffers.
    pub(crate) fn new(slots: u32) -> io::Result<Self> {
        let ring = Self::without_table()?;
        ring.0.submitter().register_buffers_sparse(slots)?;
        Ok(ring)
    }

    /// With none, for a provider to make.
    pub(crate) fn without_table() -> io::Result<Self> {
        IoUring::new(8).map(Self)
    }

    /// Pins `span` in `slot`. Fails with EFAULT where the kernel does not pin.
    pub(crate) fn register(&self, slot: u16, span: Span) -> io::Result<()> {
        let iov = libc::iovec { iov_base: span.ptr().cast(), iov_len: span.len_bytes() };
        // SAFETY: the kernel pins the pages: they stay valid whatever becomes of the mapping. They
        // are a span's, so no Rust reference is broken by what the device writes there.
        unsafe { self.0.submitter().register_buffers_update(u32::from(slot), &[iov], None) }
    }

    /// Sends the registered bytes of `span` to `file` at offset 0 (a pipe has none).
    pub(crate) fn write_fixed(&mut self, slot: u16, span: Span, file: &impl AsRawFd) -> io::Result<usize> {
        let fd = types::Fd(file.as_raw_fd());
        self.run(opcode::WriteFixed::new(fd, span.ptr(), span.len_bytes() as u32, slot).build())
    }

    /// Receives from `file` at offset 0 (a pipe has none) into the registered bytes of `span`.
    pub(crate) fn read_fixed(&mut self, slot: u16, span: Span, file: &impl AsRawFd) -> io::Result<usize> {
        let fd = types::Fd(file.as_raw_fd());
        self.run(opcode::ReadFixed::new(fd, span.ptr(), span.len_bytes() as u32, slot).build())
    }

    /// `madvise` done by the ring.
    pub(crate) fn madvise(&mut self, span: Span, advice: i32) -> io::Result<()> {
        let op = opcode::Madvise::new(span.ptr().cast(), span.len_bytes() as i64, advice);
        self.run(op.build()).map(drop)
    }

    /// `ftruncate` done by the ring (Linux 6.9).
    pub(crate) fn truncate(&mut self, file: &File, len: usize) -> io::Result<()> {
        let op = opcode::Ftruncate::new(types::Fd(file.as_raw_fd()), len as u64);
        self.run(op.build()).map(drop)
    }

    /// `fallocate` done by the ring.
    pub(crate) fn fallocate(&mut self, file: &File, mode: i32, offset: usize, len: usize) -> io::Result<()> {
        let op = opcode::Fallocate::new(types::Fd(file.as_raw_fd()), len as u64);
        self.run(op.offset(offset as u64).mode(mode).build()).map(drop)
    }

    /// One request, waited for.
    fn run(&mut self, entry: squeue::Entry) -> io::Result<usize> {
        // SAFETY: what the entry points to (a span, an open file) outlives the wait below.
        unsafe { self.0.submission().push(&entry) }.map_err(io::Error::other)?;
        while let Err(error) = self.0.submit_and_wait(1) {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let done = self.0.completion().next().ok_or_else(|| io::Error::other("no completion"))?;
        match done.result() {
            error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            bytes => Ok(bytes as usize),
        }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
