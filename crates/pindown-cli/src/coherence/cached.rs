//! A monitor under test: pindown's cache over a device that pins.

use std::io;
use std::time::Duration;

use pindown::{Access, AcquireError, Cache, PageRange, Registration};

use super::oracle::{Acquired, Device};
use crate::engine::{DeviceArgs, Engine, Key};
use crate::exit::CliError;
use crate::monitors::{self, MonitorName};
use crate::sys::Span;

/// The longest memory under test, in bytes.
const LANE_BYTES: usize = 4 << 20;

/// The cache, and what is held of it.
pub(crate) struct Cached<E: Engine> {
    engine: E,
    cache: Cache<E::Provider>,
    held: Option<Registration<E::Provider>>,
    /// The monitor sees what it is told only.
    told: bool,
}

impl<E: Engine> Cached<E> {
    pub(crate) fn new(monitor: MonitorName, device: &DeviceArgs) -> Result<Self, CliError> {
        let (engine, cache) = E::open(monitor, device, LANE_BYTES)?;
        Ok(Self { engine, cache, held: None, told: monitor == MonitorName::Manual })
    }

    /// The events that the monitor waives.
    pub(crate) fn waived(&self) -> Vec<&'static str> {
        self.cache.monitor().coverage().waived()
    }

    /// A cell that just ended may still be charged to the user's RLIMIT_MEMLOCK: try a few times.
    fn registration(&self, span: Span) -> Result<Registration<E::Provider>, AcquireError> {
        let mut tries = 0;
        loop {
            // SAFETY: a span's bytes are referred to by no Rust reference (its invariant).
            match unsafe { self.cache.acquire(span.ptr(), span.len_bytes(), Access::READ_WRITE) } {
                Err(AcquireError::Register(error)) if tries < 20 && error.evicting_may_help() => tries += 1,
                result => return result,
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn key(&self) -> io::Result<Key<E>> {
        self.held.as_ref().map(Registration::key).ok_or_else(|| io::Error::other("nothing is held"))
    }
}

impl<E: Engine> Device for Cached<E> {
    fn acquire(&mut self, span: Span) -> Result<Acquired, String> {
        let hits = self.cache.stats().hits;
        let registration = self.registration(span).map_err(|error| monitors::chain(&error))?;
        let cached = registration.is_cached();
        self.held = Some(registration);
        Ok(Acquired { hit: self.cache.stats().hits > hits, cached })
    }

    fn send(&mut self, span: Span) -> io::Result<Vec<u8>> {
        let key = self.key()?;
        self.engine.move_out(key, span)?;
        Ok(self.engine.lane()[..span.len_bytes()].to_vec())
    }

    fn receive(&mut self, span: Span, bytes: &[u8]) -> io::Result<()> {
        let key = self.key()?;
        self.engine.lane_mut()[..bytes.len()].copy_from_slice(bytes);
        self.engine.move_in(key, span)
    }

    fn put(&mut self) {
        self.held = None;
    }

    fn changed(&mut self, span: Span) {
        if let (true, Ok(range)) = (self.told, PageRange::covering(span.base(), span.len_bytes())) {
            self.cache.invalidate(range);
        }
    }
}
