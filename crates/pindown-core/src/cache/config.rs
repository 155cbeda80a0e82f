//! [`Config`]: how much to keep, and how.

use crate::hold::REGION_PAGES_MAX;
use std::time::Duration;

use crate::{Access, PolicyKind, ProviderCaps};

/// Settings of a cache. Defaults are bounded by the provider; `pindown`'s builder also takes
/// RLIMIT_MEMLOCK and cgroups into account.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Most bytes registered at a time. `None`: what the provider allows.
    pub max_bytes: Option<u64>,
    /// Most registrations at a time. `None`: what the provider allows.
    pub max_regions: Option<u64>,
    /// Register more than was asked for when neighbours are asked for one after the other.
    /// Registered bytes stay at most twice the distinct bytes requested.
    pub widen: bool,
    /// Longest registration that widening makes, in bytes.
    pub widen_max_bytes: u64,
    /// How often a registration is tried whose range changes while it is made, before it is used
    /// without being cached.
    pub attempts: u32,
    /// Who goes when there is no room.
    pub policy: PolicyKind,
    /// Requests with any of these rights are never cached: the registration is really gone when it
    /// is put. Set to [`Access::REMOTE`] so that no peer reaches memory after its put.
    pub single_use: Access,
    /// Registrations are given up when they are this old and not held, however much they are used;
    /// [`Cache::expire_old`](crate::Cache::expire_old) does it, which `pindown`'s worker calls.
    pub max_age: Option<Duration>,
    /// At which request for the same range [`Cache::acquire_reused`](crate::Cache::acquire_reused) registers.
    pub register_after: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_bytes: None,
            max_regions: None,
            widen: true,
            widen_max_bytes: 64 << 20,
            attempts: 3,
            policy: PolicyKind::default(),
            single_use: Access::empty(),
            max_age: None,
            register_after: 2,
        }
    }
}

/// The bounds in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) pages: u64,
    pub(crate) regions: u64,
    pub(crate) region_pages: u64,
}

impl Bounds {
    pub(crate) fn new(config: &Config, caps: &ProviderCaps) -> Self {
        let regions = config.max_regions.unwrap_or(u64::MAX).min(caps.max_regions);
        Self {
            pages: config.max_bytes.unwrap_or(u64::MAX).min(caps.max_bytes) / crate::PAGE_SIZE as u64,
            regions: regions.min(u64::from(crate::interval_map::MAX_REGIONS)),
            region_pages: (caps.max_region_bytes / crate::PAGE_SIZE as u64).min(REGION_PAGES_MAX),
        }
    }
}
