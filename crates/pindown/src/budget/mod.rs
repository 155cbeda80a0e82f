//! How much to keep, from what the system allows.

mod cgroup;
pub mod kernel_memory;

/// One bound on registered memory, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SystemLimit {
    /// Its name, e.g. `"RLIMIT_MEMLOCK"`.
    pub name: &'static str,
    /// Its value in bytes.
    pub bytes: u64,
    /// Where it was read.
    pub source: String,
    /// How to raise it.
    pub remedy: &'static str,
    /// What a cache takes of it by default, in bytes: others need their part.
    pub default_share_bytes: u64,
}

/// The limits that bind this process, read now. Empty where nothing does but the provider.
pub fn system_limits() -> Vec<SystemLimit> {
    [memlock(), cgroup_limit(), memory()].into_iter().flatten().collect()
}

/// Seven eighths: the limit is the user's, not this cache's alone.
fn memlock() -> Option<SystemLimit> {
    let bytes = crate::sys::limits::binding_memlock_bytes()?;
    Some(SystemLimit {
        name: "RLIMIT_MEMLOCK",
        bytes,
        source: "getrlimit(2); shared by all processes of the user".to_owned(),
        remedy: "ulimit -l, LimitMEMLOCK= in systemd, /etc/security/limits.conf, or CAP_IPC_LOCK",
        default_share_bytes: bytes / 8 * 7,
    })
}

/// Half: pinned pages cannot be reclaimed, and the rest of the group's memory must fit beside them.
fn cgroup_limit() -> Option<SystemLimit> {
    let limit = cgroup::memory_limit(std::path::Path::new("/"))?;
    Some(SystemLimit {
        name: "cgroup memory limit",
        bytes: limit.bytes,
        source: limit.file.display().to_string(),
        remedy: "MemoryMax= in systemd, --memory of the container engine, or memory.max of the group",
        default_share_bytes: limit.bytes / 2,
    })
}

/// Half of the machine's memory, whoever asks.
fn memory() -> Option<SystemLimit> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(SystemLimit {
        name: "memory",
        bytes: kib << 10,
        source: "MemTotal of /proc/meminfo".to_owned(),
        remedy: "more memory, or max_bytes of the builder",
        default_share_bytes: kib << 9,
    })
}

/// A default for `max_bytes`: the least of the shares of [`system_limits`] and what the provider
/// allows.
pub(crate) fn default_max_bytes(provider_max_bytes: u64) -> Option<u64> {
    let shares = system_limits().into_iter().map(|l| l.default_share_bytes);
    shares.min().map(|least| least.min(provider_max_bytes))
}

/// A default for `max_bytes` of on-demand regions. They pin nothing, so RLIMIT_MEMLOCK, or half of the memory,
/// would be too tight: address space is larger than memory. But not unbounded: up to 24 bytes are kept for each of their
/// pages, present or not ([`kernel_memory::VERBS_ON_DEMAND`]), which nothing reclaims: at most 2.4 % of the memory.
pub(crate) fn default_on_demand_bytes(provider_max_bytes: u64) -> Option<u64> {
    let least = [cgroup_limit(), memory()].into_iter().flatten().map(|l| l.bytes).min()?;
    Some(least.saturating_mul(ON_DEMAND_TIMES_MEMORY).min(provider_max_bytes))
}

/// See [`default_on_demand_bytes`].
const ON_DEMAND_TIMES_MEMORY: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_says_where_it_is_from_and_how_to_raise_it() {
        let limits = system_limits();
        assert!(limits.iter().any(|l| l.name == "memory" && l.bytes > 1 << 26), "{limits:?}");
        for limit in &limits {
            assert!(limit.default_share_bytes < limit.bytes, "{limit:?}");
            assert!(!limit.source.is_empty() && !limit.remedy.is_empty());
        }
        let least = limits.iter().map(|l| l.default_share_bytes).min();
        assert_eq!(default_max_bytes(u64::MAX), least);
        assert_eq!(default_max_bytes(4096), Some(4096));
    }

    #[test]
    fn on_demand_regions_are_bounded_above_the_memory() {
        let memory = memory().unwrap().bytes;
        let bytes = default_on_demand_bytes(u64::MAX).unwrap();
        assert!(bytes <= 4 * memory && bytes > default_max_bytes(u64::MAX).unwrap(), "{bytes} of {memory}");
        assert_eq!(default_on_demand_bytes(4096), Some(4096));
    }
}
