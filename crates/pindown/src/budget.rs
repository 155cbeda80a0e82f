//! How much to keep, from what the system allows.

/// A default for `max_bytes`: seven eighths of RLIMIT_MEMLOCK where it binds, since the limit is the
/// user's, not this cache's alone. `None`: nothing binds but the provider.
pub(crate) fn default_max_bytes(provider_max_bytes: u64) -> Option<u64> {
    let memlock_bytes = crate::sys::limits::binding_memlock_bytes()?;
    Some((memlock_bytes / 8 * 7).min(provider_max_bytes))
}
