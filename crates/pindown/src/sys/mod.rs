//! Every system call, ioctl and foreign function.

pub(crate) mod host;
#[cfg(feature = "io-uring")]
pub(crate) mod lanes;
#[cfg(feature = "io-uring")]
pub(crate) mod limits;
pub(crate) mod maps;
#[cfg(feature = "io-uring")]
pub(crate) mod process;
pub(crate) mod procmap;
#[cfg(test)]
pub(crate) mod test_memory;
#[cfg(feature = "io-uring")]
pub(crate) mod uring;
#[cfg(feature = "io-uring")]
pub(crate) mod uring_queue;

/// `clock_gettime(2)` in nanoseconds; `None` when the clock (or its thread) does not exist.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a live timespec for the kernel to fill.
    let rc = unsafe { libc::clock_gettime(clock, &mut t) };
    (rc == 0).then(|| t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}
