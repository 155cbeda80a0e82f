//! [`Noop`]: a provider that does nothing, for measuring the cache alone.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::provider::DeregisterFailed;
use crate::{Access, PageRange, Provider, ProviderCaps, RegisterError};

/// Registers nothing, in no time or as long as it is told. Its key is a number, as verbs' is.
#[derive(Debug, Default)]
pub struct Noop {
    made: AtomicU32,
    bytes: AtomicU64,
    latency: Duration,
}

impl Noop {
    /// Whose registrations take `latency`, asleep.
    pub fn with_latency(latency: Duration) -> Self {
        Self { latency, ..Self::default() }
    }

    /// Bytes that were registered, also those that are not any more.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many registrations were made.
    pub fn made(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }
}

// SAFETY: there is no device.
unsafe impl Provider for Noop {
    type Mr = NonZeroU32;
    type Key = u32;

    fn name(&self) -> &'static str {
        "noop"
    }
    fn caps(&self) -> ProviderCaps {
        ProviderCaps::default()
    }
    fn key(&self, mr: &NonZeroU32) -> u32 {
        mr.get()
    }
    unsafe fn register(&self, range: PageRange, _: Access) -> Result<NonZeroU32, RegisterError> {
        if !self.latency.is_zero() {
            std::thread::sleep(self.latency);
        }
        self.bytes.fetch_add(range.len_bytes() as u64, Ordering::Relaxed);
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        Ok(NonZeroU32::MIN.saturating_add(made))
    }
    fn deregister(&self, _: NonZeroU32) -> Result<(), DeregisterFailed<NonZeroU32>> {
        Ok(())
    }
}
