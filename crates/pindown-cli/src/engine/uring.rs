//! io_uring: fixed buffers, WRITE_FIXED and READ_FIXED on a memory file.

use std::io;

use pindown::Cache;
use pindown::provider::io_uring::{Mover, UringKey, UringProvider};

use super::{DeviceArgs, Engine};
use crate::exit::CliError;
use crate::monitors::{self, MonitorName};
use crate::sys::Span;

/// A ring.
pub(crate) struct UringEngine(Mover);

impl UringEngine {
    fn finish(&mut self, span: Span) -> io::Result<()> {
        let mut moved = Ok(0);
        self.0.finish(1, |_, result| moved = result)?;
        match moved? == span.len_bytes() {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Engine for UringEngine {
    type Provider = UringProvider;

    fn open(
        monitor: MonitorName,
        _device: &DeviceArgs,
        lane_bytes: usize,
    ) -> Result<(Self, Cache<UringProvider>), CliError> {
        let mover = Mover::new(1, lane_bytes).map_err(monitors::no_ring)?;
        let cache = monitors::cache_on(mover.ring(), monitor)?;
        Ok((Self(mover), cache))
    }

    fn move_out(&mut self, key: UringKey, span: Span) -> io::Result<()> {
        self.0.start_write(0, key, span.ptr(), span.len_bytes())?;
        self.finish(span)
    }

    fn move_in(&mut self, key: UringKey, span: Span) -> io::Result<()> {
        // SAFETY: no Rust reference points into a span, and the caller holds the registration.
        unsafe { self.0.start_read(0, key, span.ptr(), span.len_bytes()) }?;
        self.finish(span)
    }

    fn lane(&self) -> &[u8] {
        self.0.lane(0)
    }

    fn lane_mut(&mut self) -> &mut [u8] {
        self.0.lane_mut(0)
    }
}
