//! Registering from the second use on, for callers that can copy instead.

use super::{Cache, Inner, Registration};
use crate::{Access, AcquireError, PageRange, Provider};

impl<P: Provider> Cache<P> {
    /// Like [`acquire`](Self::acquire), for callers who can also copy through a buffer that is registered
    /// anyway: `None` says to copy this time, because the same range was asked for fewer than
    /// [`register_after`](crate::Config::register_after) times. What is registered already is
    /// always returned. Pays where copying these bytes is cheaper than registering them (over the
    /// suite of `pindown-replay` it saves 8 % then, and costs 41 % more without a cheaper copy).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Safety
    ///
    /// As [`acquire`](Self::acquire).
    pub unsafe fn acquire_reused(
        &self,
        addr: *const u8,
        len: usize,
        access: Access,
    ) -> Result<Option<Registration<P>>, AcquireError> {
        if let Some(registration) = self.peek(addr, len, access) {
            return Ok(Some(registration));
        }
        if self.0.is_seldom(PageRange::covering(addr.addr(), len)?) {
            return Ok(None);
        }
        // SAFETY: the caller's promise.
        unsafe { self.acquire(addr, len, access) }.map(Some)
    }
}

impl<P: Provider> Inner<P> {
    /// Counts a request that found nothing.
    fn is_seldom(&self, range: PageRange) -> bool {
        if self.drained.is_forked() || self.config.register_after <= 1 {
            return false;
        }
        let seldom = self.state().known.asked(range) < self.config.register_after;
        self.counters.copied.add(u64::from(seldom));
        seldom
    }
}
