//! How a region is held, so that nobody deregisters it meanwhile.
//!
//! Two protocols, both without a lock:
//!
//! - **hazard slots** (default): the holder stores the region's tag in a slot that its thread owns;
//!   putting stores zero, from any thread. Whoever wants to deregister first unlinks the region, then
//!   makes every thread pass a fence ([`Host::asymmetric_fence`](crate::Host::asymmetric_fence)), then
//!   scans all slots. The holder stored its slot *before* it re-read the table entry, so either it
//!   saw the entry gone and undid, or the scan sees the slot.
//! - **counted**: an atomic count in the region, for hosts without an asymmetric fence, threads
//!   whose slots are all taken, threads that are being torn down, and clones.
//!
//! A put does not tell anyone: the worker scans again, every few milliseconds while there are
//! stale regions that were held at the last scan. So a put is one store, and there is nothing
//! that it could touch after the cache is gone.
//!
//! With `interval_map`, the only modules of core that hold `unsafe`.

mod held;
mod record;
mod slab;
mod thread;
mod words;

pub(crate) use held::Held;
#[cfg(loom)]
pub(crate) use record::Registry;
pub(crate) use record::{Counter, ThreadRecord};
pub(crate) use slab::{FlatSlab, NewRegion, REGION_PAGES_MAX, Region, Retire, Slab, State};
pub(crate) use thread::{flush_hits, forget_hits, my_record, present_record, registry};
pub(crate) use words::{Drained, Generation};
