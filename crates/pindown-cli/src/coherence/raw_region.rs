//! The same events on a provider's registration without pindown's cache: made once, never renewed.

use std::io;

use pindown::{Access, Cache, PageRange, Provider};

use super::oracle::{Acquired, Device};
use crate::engine::{DeviceArgs, Engine, Mr};
use crate::monitors::{MonitorName, chain};
use crate::sys::Span;

/// The longest memory under test, in bytes.
const LANE_BYTES: usize = 4 << 20;

/// A registration that is kept as a program without a monitor keeps it.
pub(crate) struct RawRegion<E: Engine> {
    engine: E,
    /// Never asked: only its provider is used.
    cache: Cache<E::Provider>,
    mr: Option<Mr<E>>,
}

impl<E: Engine> RawRegion<E> {
    pub(crate) fn new(device: &DeviceArgs) -> io::Result<Self> {
        let opened = E::open(MonitorName::None, device, LANE_BYTES);
        let (engine, cache) = opened.map_err(|error| io::Error::other(error.reason().to_owned()))?;
        Ok(Self { engine, cache, mr: None })
    }

    fn key(&self) -> io::Result<crate::engine::Key<E>> {
        let mr = self.mr.as_ref().ok_or_else(|| io::Error::other("nothing is registered"))?;
        Ok(self.cache.provider().key(mr))
    }
}

impl<E: Engine> Device for RawRegion<E> {
    fn acquire(&mut self, span: Span) -> Result<Acquired, String> {
        let hit = self.mr.is_some();
        if !hit {
            let range = PageRange::covering(span.base(), span.len_bytes()).map_err(|e| chain(&e))?;
            // SAFETY: no Rust reference points into a span (its invariant).
            let mr = unsafe { self.cache.provider().register(range, Access::READ_WRITE) };
            self.mr = Some(mr.map_err(|e| chain(&e))?);
        }
        Ok(Acquired { hit, cached: true })
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

    fn put(&mut self) {}
}
