//! [`Stats`]: what the cache did, in numbers that prove it.

use crate::monitor::EventKind;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A snapshot of a cache's counters and gauges.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// Reported changes, by [`EventKind`].
            pub events: [u64; EventKind::COUNT],
        }

        /// The live counters. Those that a hit would touch are kept per thread elsewhere.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Stats {
                Stats { $($name: self.$name.get(),)* events: [0; EventKind::COUNT] }
            }
        }
    };
}

counters! {
    /// Requests: `hits + misses`.
    gets,
    /// Requests served by an existing registration.
    hits,
    /// Requests that found none.
    misses,
    /// Misses that waited for another thread's registration of the same range.
    shared_flights,
    /// Registrations made.
    registrations,
    /// Registrations given back.
    deregistrations,
    /// Registrations that failed.
    register_failures,
    /// Deregistrations that failed and were (or will be) tried again.
    deregister_failures,
    /// Registrations given up because their range changed meanwhile.
    raced,
    /// Regions dropped to make room.
    evictions,
    /// Regions dropped because they were idle or old.
    expired,
    /// Requests left to the caller's copy path, since their memory was not asked for often enough.
    copied,
    /// Times the system refused a registration for want of room, so that the budget was lowered.
    budget_lowered,
    /// Regions dropped because another covers what was asked of them.
    superseded,
    /// Regions made stale by a change.
    invalidated,
    /// Regions made stale while held.
    invalidated_held,
    /// Requests served without caching, since their range cannot be kept coherent.
    uncached,
    /// Times the set of pending changes overflowed: everything was made stale.
    overflows,
    /// Times a monitor lost events: everything was made stale.
    lost,
    /// Slow-path drains of reported changes.
    drains,
    /// Regions that lookups can find now.
    regions_live,
    /// Bytes of those (overlaps count as often as they are registered).
    bytes_live,
    /// Regions registered with the provider now: live, held although stale, or queued for deregistration.
    regions_registered,
    /// Bytes of those.
    bytes_registered,
    /// Regions that are stale or evicted and still held.
    regions_draining,
    /// Regions whose deregistration is queued or being retried.
    regions_pending,
    /// Most bytes registered at a time.
    bytes_registered_peak,
    /// Most regions registered at a time.
    regions_registered_peak,
    /// Most bytes that may be registered at a time now: the bound, or what the system last let pass.
    budget_bytes,
    /// Most regions that may be registered at a time now.
    budget_regions,
    /// Kernel and device memory that the registrations take beside the pinned pages, estimated from
    /// the provider's [`kernel_bytes_per_page`](crate::ProviderCaps::kernel_bytes_per_page); 0: not known.
    kernel_bytes_estimate,
}

/// One counter or gauge.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::Relaxed) + n
    }
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }
    pub(crate) fn raise_to(&self, n: u64) {
        if self.get() < n {
            self.0.fetch_max(n, Ordering::Relaxed);
        }
    }
    /// For counters that only change under the cache's lock: without a locked instruction.
    pub(crate) fn add_locked(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }
    /// The same.
    pub(crate) fn sub_locked(&self, n: u64) {
        self.set(self.get().wrapping_sub(n));
    }
}

/// Counts of reports, kept with the notifier.
#[derive(Debug, Default)]
pub(crate) struct EventCounts {
    events: [Counter; EventKind::COUNT],
    overflows: Counter,
    lost: Counter,
}

impl EventCounts {
    pub(crate) fn event(&self, kind: EventKind) {
        self.events[kind as usize].add(1);
    }
    pub(crate) fn overflow(&self) {
        self.overflows.add(1);
    }
    pub(crate) fn lost(&self) {
        self.lost.add(1);
    }
    pub(crate) fn fill(&self, stats: &mut Stats) {
        stats.overflows = self.overflows.get();
        stats.lost = self.lost.get();
        stats.events = std::array::from_fn(|i| self.events[i].get());
    }
}
