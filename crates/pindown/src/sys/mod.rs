//! Every system call, ioctl and foreign function.

pub(crate) mod at_exit;
#[cfg(feature = "ebpf")]
pub(crate) mod bpf;
#[cfg(feature = "ebpf")]
pub(crate) mod bpf_pages;
#[cfg(feature = "ebpf")]
pub(crate) mod bpf_ring;
#[cfg(feature = "ebpf")]
pub(crate) mod bpf_scratch;
pub(crate) mod eventfd;
pub(crate) mod files;
pub(crate) mod fork;
pub(crate) mod headroom;
pub(crate) mod host;
#[cfg(feature = "io-uring")]
pub(crate) mod lanes;
pub(crate) mod limits;
pub(crate) mod maps;
pub(crate) mod pagemap;
pub(crate) mod per_process;
pub(crate) mod populate;
pub(crate) mod pressure;
pub(crate) mod process;
pub(crate) mod procmap;
pub(crate) mod published;
pub(crate) mod quiet_thread;
pub(crate) mod scratch;
#[cfg(feature = "ebpf")]
pub(crate) mod seqpacket;
pub(crate) mod slots;
pub(crate) mod stay_loaded;
#[cfg(test)]
pub(crate) mod test_memory;
pub(crate) mod threads;
pub(crate) mod uffd;
#[cfg(feature = "io-uring")]
pub(crate) mod uring;
#[cfg(feature = "io-uring")]
pub(crate) mod uring_queue;
#[cfg(feature = "io-uring")]
pub(crate) mod uring_send;
pub(crate) mod valgrind;
#[cfg(feature = "verbs")]
pub(crate) mod verbs;

/// `clock_gettime(2)` in nanoseconds; `None` when the clock (or its thread) does not exist.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a live timespec for the kernel to fill.
    let rc = unsafe { libc::clock_gettime(clock, &mut t) };
    (rc == 0).then(|| t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// The kernel's page size in bytes (`sysconf(3)`).
pub(crate) fn page_size() -> usize {
    // SAFETY: reads a constant of the system.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Blocks all signals in the calling thread, so that no handler of the application's runs on it.
pub(crate) fn block_signals() {
    // SAFETY: `set` is a live, fully initialised set; changing this thread's own mask is harmless.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&mut set);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// `Cache::acquire` for a request whose maker made the promise that it asks for.
pub(crate) fn acquire_for_submitter<P: pindown_core::Provider>(
    cache: &pindown_core::Cache<P>,
    addr: *const u8,
    len_bytes: usize,
    access: pindown_core::Access,
) -> Result<pindown_core::Registration<P>, pindown_core::AcquireError> {
    // SAFETY: only called for jobs made by `Queue`'s unsafe methods, whose contract is `acquire`'s
    // from the submission on, and by `Everything::keys`, whose contract it is too.
    unsafe { cache.acquire(addr, len_bytes, access) }
}
