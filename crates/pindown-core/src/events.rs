//! What slow paths tell subscribers of the `tracing` crate: with its feature off, nothing.
//!
//! Hits tell nothing. All have the target `pindown_core`.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

use crate::{AcquireError, PageRange};

/// An event, where there is somebody to tell.
macro_rules! tell {
    ($level:ident, $($what:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "pindown_core", $($what)*)
    };
}

pub(crate) fn registered(provider: &str, range: PageRange, cost_ns: u64) {
    tell!(debug, provider, %range, cost_ns, "registered");
}

pub(crate) fn register_failed(provider: &str, range: PageRange, error: &AcquireError) {
    tell!(warn, provider, %range, %error, "registering failed");
}

pub(crate) fn deregister_failed(provider: &str, range: PageRange, tries: u32) {
    tell!(warn, provider, %range, tries, "deregistering failed and is tried again");
}

pub(crate) fn evicted(range: PageRange) {
    tell!(debug, %range, "evicted");
}

pub(crate) fn stale(range: PageRange) {
    tell!(debug, %range, "memory changed: the registration is stale");
}

pub(crate) fn budget_lowered(bytes: u64, regions: u64) {
    tell!(warn, bytes, regions, "the system refused a registration: the budget is lower for a while");
}
