//! [`Wire`]: a ring, and the other end of what it moves.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::sys::{self, Ring, Span};

/// WRITE_FIXED goes into a pipe and READ_FIXED comes from it. The kernel does both at once on the
/// thread that asks (files would go through a helper thread), so that what is timed is registration
/// and copying. Filling and emptying the pipe is off the clock.
pub(crate) struct Wire {
    ring: Ring,
    near: PipeWriter,
    far: PipeReader,
    /// Bytes that the pipe takes at a time.
    room: usize,
    /// What arrived at the far end, or is to come in.
    bytes: Vec<u8>,
    /// Time off the clock since it was asked for.
    off_clock: Duration,
}

impl Wire {
    /// For transfers of up to `len` bytes.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let (far, near) = io::pipe()?;
        let room = sys::set_pipe_size(&near, len)?;
        let (ring, bytes) = (Ring::without_table()?, vec![0; len]);
        Ok(Self { ring, near, far, room, bytes, off_clock: Duration::ZERO })
    }

    /// Sends all bytes of `span` through the fixed buffer `slot`.
    pub(crate) fn send(&mut self, slot: u16, span: Span) -> io::Result<()> {
        let mut at = 0;
        while at < span.len_bytes() {
            let part = span.part(at, self.room.min(span.len_bytes() - at));
            let sent = self.ring.write_fixed(slot, part, &self.near)?;
            let start = Instant::now();
            nonzero(sent)?;
            self.far.read_exact(&mut self.bytes[at..at + sent])?;
            self.off_clock += start.elapsed();
            at += sent;
        }
        Ok(())
    }

    /// Readies `len` bytes of the pattern of `seed` to come in.
    pub(crate) fn ready(&mut self, len: usize, seed: u64) -> io::Result<()> {
        for (i, word) in self.bytes[..len].chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&sys::pattern(seed, i as u64).to_ne_bytes());
        }
        self.near.write_all(&self.bytes[..len.min(self.room)])
    }

    /// Receives what is ready into `span` through the fixed buffer `slot`.
    pub(crate) fn receive(&mut self, slot: u16, span: Span) -> io::Result<()> {
        let (len, mut at) = (span.len_bytes(), 0);
        let mut in_pipe = len.min(self.room);
        while at < len {
            if at == in_pipe {
                let start = Instant::now();
                in_pipe = len.min(at + self.room);
                self.near.write_all(&self.bytes[at..in_pipe])?;
                self.off_clock += start.elapsed();
            }
            let got = self.ring.read_fixed(slot, span.part(at, in_pipe - at), &self.far)?;
            nonzero(got)?;
            at += got;
        }
        Ok(())
    }

    /// Whether the CPU sees in `span` what was moved.
    pub(crate) fn agrees(&self, span: Span) -> bool {
        span.equals(&self.bytes[..span.len_bytes()])
    }

    /// After a failed transfer: takes what it left in the pipe, so that the next is not blamed for it.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        while sys::wait_readable(&self.far, 0)? {
            nonzero(self.far.read(&mut self.bytes)?)?;
        }
        Ok(())
    }

    /// Time off the clock since the last call.
    pub(crate) fn take_off_clock(&mut self) -> Duration {
        std::mem::take(&mut self.off_clock)
    }
}

fn nonzero(moved: usize) -> io::Result<()> {
    if moved == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}
