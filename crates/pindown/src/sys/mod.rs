//! Every system call, ioctl and foreign function.

pub(crate) mod eventfd;
pub(crate) mod files;
pub(crate) mod fork;
pub(crate) mod headroom;
pub(crate) mod host;
pub(crate) mod maps;
pub(crate) mod pagemap;
pub(crate) mod per_process;
pub(crate) mod procmap;
pub(crate) mod quiet_thread;
pub(crate) mod scratch;
pub(crate) mod slots;
#[cfg(test)]
pub(crate) mod test_memory;
pub(crate) mod threads;
pub(crate) mod uffd;

/// `clock_gettime(2)` in nanoseconds; `None` when the clock (or its thread) does not exist.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a live timespec for the kernel to fill.
    let rc = unsafe { libc::clock_gettime(clock, &mut t) };
    (rc == 0).then(|| t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}
