//! The coherent memory-registration cache of pindown, without a system call.

mod access;
mod cache;
mod error;
mod events;
pub mod eviction;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod hold;
mod host;
mod interval_map;
#[cfg(loom)]
mod loom_models;
mod monitor;
mod notifier;
mod pending;
mod provider;
mod range;
pub mod sim;
mod stats;
mod sync;
pub mod trace;
mod wake;

pub use access::Access;
pub use cache::{Cache, Config, Ended, Registration};
pub use error::{AcquireError, BuildError, CloseError, FlushError};
pub use eviction::{PolicyKind, UseClock, UseWord};
pub use host::{Host, Mapping, PlainHost, Reservation};
pub use monitor::{
    Cover, Coverage, Delivery, Drained, EventKind, MappingKind, Monitor, MonitorError, Stamp, Subscription,
    Validity,
};
pub use notifier::Notifier;
pub use provider::{Affinity, DeregisterFailed, Limit, Provider, ProviderCaps, RegisterError};
pub use range::{ADDRESS_SPACE_END, PAGE_SHIFT, PAGE_SIZE, PageRange, RangeError};
pub use stats::Stats;
