//! [`Grant`]: access for a peer to exact bytes, for exactly as long as it lives.

use std::any::Any;
use std::io;
use std::time::Duration;

use pindown_core::Access;

use super::endpoint::{Endpoint, RcError, failed};
use crate::provider::verbs::{Key, Verbs};
use crate::sys::verbs::Window;

/// A memory window of type 1 over part of a cached region (`ibv_bind_mw(3)`). Its rkey reaches the
/// bytes that it was opened over and no others, and ends when it is revoked or dropped, while the
/// region stays registered for the next use.
///
/// Needs a provider made with [`Options::memory_windows`](crate::provider::verbs::Options::memory_windows).
#[derive(Debug)]
pub struct Grant {
    // Freed first: a region with a window on it cannot be deregistered (EBUSY).
    window: Window,
    rkey: u32,
    _hold: Box<dyn Any + Send>,
}

impl Grant {
    /// Opens `len_bytes` at `addr` of the region with `key` for the peers' `rights`. Posts a
    /// request on `endpoint`, which must be connected, and waits for it. `hold` keeps the region
    /// registered, with local write access if `rights` write.
    ///
    /// # Safety
    ///
    /// While the grant lives, what a peer may write is not read or written through Rust references.
    pub unsafe fn open(
        endpoint: &Endpoint,
        provider: &Verbs,
        key: Key,
        (addr, len_bytes): (usize, usize),
        rights: Access,
        hold: impl Any + Send,
        timeout: Duration,
    ) -> Result<Self, RcError> {
        let mut window = Window::alloc(provider.pd()).map_err(failed("ibv_alloc_mw"))?;
        let id = endpoint.reserve_id();
        let bound = provider.pd().with_windowed(key.lkey, |mr| {
            window.bind(endpoint.qp(), id, mr, (addr as u64, len_bytes as u64), rights)
        });
        bound.ok_or(RcError::NoWindow)?.map_err(failed("ibv_bind_mw"))?;
        endpoint.wait_for(id, timeout)?;
        let rkey = window.rkey();
        Ok(Self { window, rkey, _hold: Box::new(hold) })
    }

    /// The key to give to the peer.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Ends the access: when this returned `Ok`, requests with the rkey fail at the peer. On
    /// failure the grant comes back.
    pub fn revoke(mut self) -> Result<(), (Self, io::Error)> {
        self.window.free().map_err(|e| (self, e))
    }
}
