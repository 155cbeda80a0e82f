//! `pindown_builder`: from a provider to a cache.

use std::mem::MaybeUninit;
use std::time::Duration;

use pindown::{Builder, MonitorChoice, PolicyKind};

use crate::boundary::enter_unit;
use crate::cache::pindown_cache;
use crate::failure::{Failure, Result};
use crate::handle::{free, get_mut, give_new, handle, take};
use crate::provider::{Any, pindown_provider};
use crate::status::pindown_status;

/// Who sees the address space change.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum pindown_monitor {
    /// The best that starts here (eBPF, else userfaultfd); where none does, nothing is cached and everything works.
    PINDOWN_MONITOR_AUTO = 0,
    /// userfaultfd events (Linux 6.7, unprivileged).
    PINDOWN_MONITOR_UFFD = 1,
    /// Programs on the kernel's unmap paths (Linux 6.1; CAP_BPF and CAP_PERFMON, or `pindown helper`).
    PINDOWN_MONITOR_EBPF = 2,
    /// The application reports every change, with pindown_invalidate or a pindown_notifier.
    PINDOWN_MONITOR_MANUAL = 3,
    /// Caches nothing: each request registers.
    PINDOWN_MONITOR_UNCACHED = 4,
    /// Caches everything and sees nothing: moves stale bytes. To demonstrate the hazard only.
    PINDOWN_MONITOR_NONE = 5,
}

/// Which registration goes when there is no room.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum pindown_policy {
    /// Chooses by what the others would have cost.
    PINDOWN_POLICY_ADAPTIVE = 0,
    /// The least recently used.
    PINDOWN_POLICY_LRU = 1,
    /// Two queues; a scan passes through.
    PINDOWN_POLICY_S3FIFO = 2,
}

/// `None` once it failed to build.
type State = Option<Builder<Any>>;

handle!(
    /// Settings of a cache that is not there yet.
    pindown_builder(Box<State>) = b"pd.build"
);

pub(crate) fn monitor(number: u32) -> Result<MonitorChoice> {
    use pindown_monitor::*;
    let named = [
        (PINDOWN_MONITOR_AUTO, MonitorChoice::Auto),
        (PINDOWN_MONITOR_UFFD, MonitorChoice::Uffd),
        (PINDOWN_MONITOR_EBPF, MonitorChoice::Ebpf),
        (PINDOWN_MONITOR_MANUAL, MonitorChoice::Manual),
        (PINDOWN_MONITOR_UNCACHED, MonitorChoice::Uncached),
        (PINDOWN_MONITOR_NONE, MonitorChoice::None),
    ];
    let found = named.into_iter().find(|(name, _)| *name as u32 == number);
    found.map(|(_, choice)| choice).ok_or_else(|| Failure::invalid(format!("no pindown_monitor is {number}")))
}

fn policy(number: u32) -> Result<PolicyKind> {
    use pindown_policy::*;
    let named = [
        (PINDOWN_POLICY_ADAPTIVE, PolicyKind::Adaptive),
        (PINDOWN_POLICY_LRU, PolicyKind::Lru),
        (PINDOWN_POLICY_S3FIFO, PolicyKind::S3Fifo),
    ];
    let found = named.into_iter().find(|(name, _)| *name as u32 == number);
    found.map(|(_, kind)| kind).ok_or_else(|| Failure::invalid(format!("no pindown_policy is {number}")))
}

/// Settings of a cache over `provider`, which the builder takes on success: do not free it then. One thread at a time.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_builder_new(
    provider: Option<Box<pindown_provider>>,
    builder: Option<&mut MaybeUninit<*mut pindown_builder>>,
) -> pindown_status {
    if builder.is_none() {
        // Looked at first, so that the provider stays the caller's.
        let _ = provider.map(Box::into_raw);
        return enter_unit(|| Err(Failure::null("the place for the result")));
    }
    enter_unit(|| {
        give_new(builder, || {
            let provider = take(provider)?.ok_or_else(|| Failure::null("pindown_provider"))?;
            Ok(Box::new(Some(Builder::new(*provider))))
        })
    })
}

/// Frees a builder that was not built, and its provider. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_builder_free(builder: Option<Box<pindown_builder>>) -> pindown_status {
    free(builder)
}

fn set(
    builder: Option<&mut pindown_builder>,
    change: impl FnOnce(Builder<Any>) -> Result<Builder<Any>>,
) -> pindown_status {
    enter_unit(|| {
        let state = get_mut(builder)?;
        let before = state.take().ok_or_else(|| Failure::invalid("the builder was used up by a panic"))?;
        **state = Some(change(before)?);
        Ok(())
    })
}

/// Who sees the address space change: a pindown_monitor. Default: auto.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_builder_monitor(
    builder: Option<&mut pindown_builder>,
    monitor: u32,
) -> pindown_status {
    match self::monitor(monitor) {
        Ok(choice) => set(builder, |b| Ok(b.monitor(choice))),
        Err(failure) => enter_unit(|| Err(failure)),
    }
}

/// Most bytes registered at a time. Default: below RLIMIT_MEMLOCK, cgroup limits and the provider's.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_builder_max_bytes(
    builder: Option<&mut pindown_builder>,
    bytes: u64,
) -> pindown_status {
    set(builder, |b| Ok(b.max_bytes(bytes)))
}

/// Most registrations at a time. Default: what the provider allows.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_builder_max_regions(
    builder: Option<&mut pindown_builder>,
    regions: u64,
) -> pindown_status {
    set(builder, |b| Ok(b.max_regions(regions)))
}

/// Whether neighbours asked for one after the other are registered together. Default: yes.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_builder_widen(
    builder: Option<&mut pindown_builder>,
    widen: bool,
) -> pindown_status {
    set(builder, |b| Ok(b.widen(widen)))
}

/// Which registration goes when there is no room: a pindown_policy.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_builder_policy(
    builder: Option<&mut pindown_builder>,
    policy: u32,
) -> pindown_status {
    match self::policy(policy) {
        Ok(kind) => set(builder, |b| Ok(b.policy(kind))),
        Err(failure) => enter_unit(|| Err(failure)),
    }
}

/// Registrations that nobody asked for during this time, in nanoseconds, are given up. Default: kept until room is
/// short.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_builder_idle(
    builder: Option<&mut pindown_builder>,
    idle_ns: u64,
) -> pindown_status {
    set(builder, |b| Ok(b.idle(Duration::from_nanos(idle_ns))))
}

/// Whether registrations whose memory is not mapped any more are looked for. Default: where nothing reports it.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_builder_sweep(
    builder: Option<&mut pindown_builder>,
    sweep: bool,
) -> pindown_status {
    set(builder, |b| Ok(b.sweep(sweep)))
}

/// Whether half of what is registered is given up when the machine is short of memory. Default: yes.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_builder_relieve_pressure(
    builder: Option<&mut pindown_builder>,
    relieve: bool,
) -> pindown_status {
    set(builder, |b| Ok(b.relieve_pressure(relieve)))
}

/// Whether `pindown top` sees the cache's counters. Default: yes, unless PINDOWN_EXPORT=0 in the environment.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_builder_export(
    builder: Option<&mut pindown_builder>,
    export: bool,
) -> pindown_status {
    set(builder, |b| Ok(b.export(export)))
}

/// Registrations with remote rights are really deregistered when they are put, so that no peer reaches the memory
/// afterwards. They are then never cached.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_builder_revoke_on_put(builder: Option<&mut pindown_builder>) -> pindown_status {
    set(builder, |b| Ok(b.revoke_on_put()))
}

/// Starts the monitor and the worker thread. Frees the builder, whether it succeeds or not; on failure also the
/// provider. PINDOWN_E_MONITOR when the monitor does not start here; auto always does.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_builder_build(
    builder: Option<Box<pindown_builder>>,
    cache: Option<&mut MaybeUninit<*mut pindown_cache>>,
) -> pindown_status {
    enter_unit(|| {
        let state = take(builder)?.ok_or_else(|| Failure::null("pindown_builder"))?;
        let builder = state.ok_or_else(|| Failure::invalid("the builder was used up by a panic"))?;
        give_new(cache, || Ok(builder.build()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_what_they_say() {
        let names = ["Auto", "Uffd", "Ebpf", "Manual", "Uncached", "None"];
        for (number, name) in (0..).zip(names) {
            assert_eq!(format!("{:?}", monitor(number).unwrap()), name);
        }
        assert!(monitor(6).is_err() && policy(3).is_err());
        assert_eq!([0, 1, 2].map(|n| policy(n).unwrap()), PolicyKind::ALL);
    }
}
