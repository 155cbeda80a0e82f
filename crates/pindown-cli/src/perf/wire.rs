//! [`Wire`]: a device, and the other end of what it moves.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use pindown::provider::io_uring::{UringKey, UringProvider};
use pindown::{Cache, Provider};

use crate::engine::DeviceArgs;
use crate::exit::CliError;
use crate::monitors::{self, MonitorName};
use crate::sys::{self, Ring, Span};

/// Moves bytes between a registered buffer and an end of its own.
pub(crate) trait Wire: Sized + Send {
    /// Who registers.
    type Provider: Provider;
    /// Its name in JSON.
    const PROVIDER: &'static str;
    /// What it registers, for people.
    const REGISTERS: &'static str;

    /// For transfers of up to `len` bytes, with a cache over its provider.
    fn open(
        monitor: MonitorName,
        device: &DeviceArgs,
        len: usize,
    ) -> Result<(Self, Cache<Self::Provider>), CliError>;
    /// The program is about to change what is mapped at `span`. Real devices need not be told.
    fn before_change(&self, _span: Span) -> io::Result<()> {
        Ok(())
    }
    /// `span` is new or changed, and has not been touched since.
    fn after_change(&self, _span: Span) -> io::Result<()> {
        Ok(())
    }
    /// Sends all bytes of `span`, registered under `key`.
    fn send(&mut self, key: Key<Self>, span: Span) -> io::Result<()>;
    /// Readies `len` bytes of the pattern of `seed` to come in.
    fn ready(&mut self, len: usize, seed: u64) -> io::Result<()>;
    /// Receives what is ready into `span`, registered under `key` and held by the caller.
    fn receive(&mut self, key: Key<Self>, span: Span) -> io::Result<()>;
    /// Whether the CPU sees in `span` what was moved.
    fn agrees(&self, span: Span) -> bool;
    /// After a failed transfer: takes what it left behind, so that the next is not blamed for it.
    fn clear(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Time off the clock since the last call.
    fn take_off_clock(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// The key of a wire's registrations.
pub(crate) type Key<W> = <<W as Wire>::Provider as Provider>::Key;
/// A wire's registration.
pub(crate) type Mr<W> = <<W as Wire>::Provider as Provider>::Mr;

/// WRITE_FIXED goes into a pipe and READ_FIXED comes from it. The kernel does both at once on the
/// thread that asks (files would go through a helper thread), so that what is timed is registration
/// and copying. Filling and emptying the pipe is off the clock.
pub(crate) struct RingWire {
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

impl RingWire {
    fn new(len: usize) -> io::Result<Self> {
        let (far, near) = io::pipe()?;
        let room = sys::set_pipe_size(&near, len)?;
        let (ring, bytes) = (Ring::without_table()?, vec![0; len]);
        Ok(Self { ring, near, far, room, bytes, off_clock: Duration::ZERO })
    }
}

impl Wire for RingWire {
    type Provider = UringProvider;
    const PROVIDER: &'static str = "io-uring";
    const REGISTERS: &'static str = "fixed buffers";

    fn open(
        monitor: MonitorName,
        _device: &DeviceArgs,
        len: usize,
    ) -> Result<(Self, Cache<UringProvider>), CliError> {
        let wire = Self::new(len).map_err(monitors::no_ring)?;
        let cache = monitors::cache_on(&wire, monitor)?;
        Ok((wire, cache))
    }

    fn send(&mut self, key: UringKey, span: Span) -> io::Result<()> {
        let mut at = 0;
        while at < span.len_bytes() {
            let part = span.part(at, self.room.min(span.len_bytes() - at));
            let sent = self.ring.write_fixed(key.buf_index(), part, &self.near)?;
            let start = Instant::now();
            nonzero(sent)?;
            self.far.read_exact(&mut self.bytes[at..at + sent])?;
            self.off_clock += start.elapsed();
            at += sent;
        }
        Ok(())
    }

    fn ready(&mut self, len: usize, seed: u64) -> io::Result<()> {
        sys::fill_pattern(&mut self.bytes[..len], seed);
        self.near.write_all(&self.bytes[..len.min(self.room)])
    }

    fn receive(&mut self, key: UringKey, span: Span) -> io::Result<()> {
        let (len, mut at) = (span.len_bytes(), 0);
        let mut in_pipe = len.min(self.room);
        while at < len {
            if at == in_pipe {
                let start = Instant::now();
                in_pipe = len.min(at + self.room);
                self.near.write_all(&self.bytes[at..in_pipe])?;
                self.off_clock += start.elapsed();
            }
            let got = self.ring.read_fixed(key.buf_index(), span.part(at, in_pipe - at), &self.far)?;
            nonzero(got)?;
            at += got;
        }
        Ok(())
    }

    fn agrees(&self, span: Span) -> bool {
        span.equals(&self.bytes[..span.len_bytes()])
    }

    fn clear(&mut self) -> io::Result<()> {
        while sys::wait_readable(&self.far, 0)? {
            nonzero(self.far.read(&mut self.bytes)?)?;
        }
        Ok(())
    }

    fn take_off_clock(&mut self) -> Duration {
        std::mem::take(&mut self.off_clock)
    }
}

fn nonzero(moved: usize) -> io::Result<()> {
    if moved == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

impl AsFd for RingWire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}
