//! pindown: memory registration that stays right while the address space changes.
//!
//! Start at [`Builder`]: a [`Provider`] (whoever pins pages), a [`MonitorChoice`] (whoever sees them
//! change), and out comes a [`Cache`]. [`Cache::acquire`](pindown_core::Cache::acquire) returns a held
//! [`Registration`] with the key for the work request; dropping it puts it.
//!
//! | module | what |
//! |---|---|
//! | [`provider`] | io_uring fixed buffers, RDMA verbs (feature `verbs`), a simulation |
//! | [`monitor`] | userfaultfd, eBPF (feature `ebpf`), manual reports |
//! | [`queue`] | submit, and poll for completion; futures; prefetch |
//! | [`watch`] | the notifications alone, for a cache of your own |
//! | [`probe`] | facts about this machine |

pub mod budget;
mod builder;
mod cache;
pub mod everything;
pub mod export;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "ebpf")]
pub mod helper;
pub mod metrics;
pub mod monitor;
#[cfg(doctest)]
mod pages;
pub mod probe;
pub mod provider;
pub mod queue;
pub mod segments;
// Each backend uses a part of it.
#[cfg_attr(not(all(feature = "uffd", feature = "io-uring")), allow(dead_code))]
mod sys;
pub mod trace;
pub mod upkeep;
pub mod watch;
mod watches;
mod worker;

pub use builder::{Builder, MonitorChoice};
pub use cache::Cache;
pub use pindown_core::{
    self as core, ADDRESS_SPACE_END, Access, AcquireError, Affinity, BuildError, CloseError, Config, Cover,
    Coverage, Delivery, DeregisterFailed, Drained, Ended, EventKind, FlushError, Host, Limit, Mapping,
    MappingKind, Monitor, MonitorError, Notifier, PAGE_SHIFT, PAGE_SIZE, PageRange, PolicyKind, Provider,
    ProviderCaps, RangeError, RegisterError, Registration, Reservation, Stamp, Stats, Subscription, Validity,
};
pub use sys::host::LinuxHost;

/// The README's example, as a test.
#[cfg(all(doctest, feature = "io-uring"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
