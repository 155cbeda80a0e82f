//! `pindown_stats`: what a cache did.

use pindown::Stats;
use pindown::core::EventKind;

use crate::boundary::enter_unit;
use crate::cache::pindown_cache;
use crate::failure::Failure;
use crate::handle::get;
use crate::status::pindown_status;

/// Counters and gauges of a cache. Later versions append members; see pindown_cache_stats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct pindown_stats {
    /// Requests: hits + misses.
    pub gets: u64,
    /// Requests served by an existing registration.
    pub hits: u64,
    /// Requests that found none.
    pub misses: u64,
    /// Misses that waited for another thread's registration of the same range.
    pub shared_flights: u64,
    /// Registrations made.
    pub registrations: u64,
    /// Registrations given back.
    pub deregistrations: u64,
    /// Registrations that failed.
    pub register_failures: u64,
    /// Deregistrations that failed and are tried again.
    pub deregister_failures: u64,
    /// Registrations given up because their range changed meanwhile.
    pub raced: u64,
    /// Dropped to make room.
    pub evictions: u64,
    /// Dropped because another covers what was asked of them.
    pub superseded: u64,
    /// Made stale by a change.
    pub invalidated: u64,
    /// Made stale while held.
    pub invalidated_held: u64,
    /// Requests served without caching, since their range cannot be kept coherent.
    pub uncached: u64,
    /// Times the set of pending changes overflowed: everything was made stale.
    pub overflows: u64,
    /// Times a monitor lost events: everything was made stale.
    pub lost: u64,
    /// Slow-path drains of reported changes.
    pub drains: u64,
    /// Registrations that lookups can find now.
    pub regions_live: u64,
    /// Bytes of those.
    pub bytes_live: u64,
    /// Registrations with the provider now.
    pub regions_registered: u64,
    /// Bytes of those.
    pub bytes_registered: u64,
    /// Stale or evicted, and still held.
    pub regions_draining: u64,
    /// Waiting to be deregistered.
    pub regions_pending: u64,
    /// Most bytes registered at a time.
    pub bytes_registered_peak: u64,
    /// Most registrations at a time.
    pub regions_registered_peak: u64,
    /// Reported changes: unmap, remap, remove, file, protect, manual, check, sweep.
    pub events: [u64; 8],
}

const _: () = assert!(EventKind::COUNT == 8, "append a member for what is new");

/// Names each member once.
macro_rules! from_rust {
    ($($name:ident)*) => {
        impl From<Stats> for pindown_stats {
            fn from(s: Stats) -> Self {
                Self { $($name: s.$name,)* events: s.events }
            }
        }
    };
}

from_rust! {
    gets hits misses shared_flights registrations deregistrations register_failures deregister_failures raced
    evictions superseded invalidated invalidated_held uncached overflows lost drains regions_live bytes_live
    regions_registered bytes_registered regions_draining regions_pending bytes_registered_peak
    regions_registered_peak
}

/// Fills in `stats`. `size` is sizeof(struct pindown_stats), so that a library that knows more members writes no more than
/// you have, and one that knows less leaves zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pindown_cache_stats(
    cache: Option<&pindown_cache>,
    stats: *mut pindown_stats,
    size: usize,
) -> pindown_status {
    enter_unit(|| {
        if stats.is_null() {
            return Err(Failure::null("stats"));
        }
        if size < size_of::<u64>() {
            return Err(Failure::invalid(format!("size is {size}: pass sizeof(struct pindown_stats)")));
        }
        let now = pindown_stats::from(get(cache)?.stats());
        let known = size.min(size_of::<pindown_stats>());
        // SAFETY: `size` bytes at `stats` are the caller's to be written, by the header; `now` is numbers only.
        unsafe {
            let out = stats.cast::<u8>();
            out.write_bytes(0, size);
            std::ptr::copy_nonoverlapping((&raw const now).cast(), out, known);
        }
        Ok(())
    })
}
