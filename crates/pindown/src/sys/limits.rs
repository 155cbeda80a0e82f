//! What bounds pinned memory.

use std::fs;

/// `CAP_IPC_LOCK` of capabilities(7): RLIMIT_MEMLOCK does not apply.
const CAP_IPC_LOCK: u32 = 14;

/// The soft RLIMIT_MEMLOCK in bytes; `None` when unlimited.
pub(crate) fn memlock_bytes() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes one rlimit to the pointer, which is to a live one.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } != 0;
    (!failed && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// The soft RLIMIT_NOFILE; `None` when unlimited.
pub(crate) fn open_files() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes one rlimit to the pointer, which is to a live one.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0;
    (!failed && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// The RLIMIT_MEMLOCK that binds this process, in bytes; `None` when unlimited or when CAP_IPC_LOCK exempts it.
/// The kernel asks for the capability in the initial user namespace only (capable(), kernel/capability.c).
pub(crate) fn binding_memlock_bytes() -> Option<u64> {
    let limit = memlock_bytes()?;
    (!(has_capability(CAP_IPC_LOCK) && in_initial_user_namespace())).then_some(limit)
}

/// Whether the effective set of this thread holds capability `number` (proc_pid_status(5), CapEff).
pub(crate) fn has_capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let set = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    set.is_some_and(|set| set >> number & 1 == 1)
}

/// The initial user namespace maps all 2^32 - 1 ids to themselves (user_namespaces(7)).
fn in_initial_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}
