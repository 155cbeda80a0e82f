//! [`LinuxHost`]: the system services that core asks for.

use std::io;

use pindown_core::{Host, Mapping, PageRange, Reservation};

use super::procmap::ProcMap;

/// [`Host`] by Linux system calls.
#[derive(Debug)]
pub struct LinuxHost {
    procmap: Option<ProcMap>,
    membarrier: bool,
}

impl LinuxHost {
    /// Registers the process for `membarrier(2)` and opens `/proc/self/maps`. Does not fail: what
    /// is refused (seccomp, no `/proc`) is done without, see [`Host`].
    pub fn new() -> Self {
        Self { procmap: ProcMap::open().ok(), membarrier: register_membarrier().is_ok() }
    }
}

impl Default for LinuxHost {
    fn default() -> Self {
        Self::new()
    }
}

impl Host for LinuxHost {
    fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let mut reservation = map(bytes)?;
        let at = reservation.base as *mut libc::c_void;
        // SAFETY: advice on the mapping just made, whose present content neither kind changes.
        unsafe {
            libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE);
            reservation.wiped_on_fork = libc::madvise(at, bytes, libc::MADV_WIPEONFORK) == 0;
        }
        Some(reservation)
    }

    fn reserve_kept(&self, bytes: usize) -> Option<Reservation> {
        let reservation = map(bytes)?;
        let small = bytes.min(HUGE_AFTER_BYTES);
        // SAFETY: advice on parts of the mapping just made; no content changes.
        unsafe {
            libc::madvise(reservation.base as *mut libc::c_void, small, libc::MADV_NOHUGEPAGE);
            let rest = (reservation.base + small) as *mut libc::c_void;
            libc::madvise(rest, bytes - small, libc::MADV_HUGEPAGE);
        }
        Some(reservation)
    }

    unsafe fn release(&self, reservation: Reservation) {
        // SAFETY: by this method's contract it is a mapping of `reserve` that nothing refers to.
        let rc = unsafe { libc::munmap(reservation.base as *mut libc::c_void, reservation.len_bytes) };
        debug_assert_eq!(rc, 0, "munmap of a reservation: {}", io::Error::last_os_error());
    }

    fn has_asymmetric_fence(&self) -> bool {
        self.membarrier
    }

    fn asymmetric_fence(&self) {
        if membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED).is_err() {
            // EPERM: a forked child is not registered (the registration is the mm's).
            let again =
                register_membarrier().and_then(|()| membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED));
            // Going on without the fence would be unsound, and no caller can do without it.
            again.expect("membarrier(PRIVATE_EXPEDITED) worked at start-up and now fails");
        }
    }

    fn mapping(&self, range: PageRange) -> Option<Mapping> {
        let vma = self.procmap.as_ref()?.find(range.start(), false).ok()??;
        let whole = vma.range()?;
        whole.contains(range).then_some(Mapping {
            range: whole,
            readable: vma.perms.readable,
            writable: vma.perms.writable,
        })
    }

    fn now_ns(&self) -> u64 {
        super::clock_ns(libc::CLOCK_MONOTONIC).unwrap_or(0)
    }
}

/// Up to here a reservation that fills from its start is in small pages: small caches stay small.
const HUGE_AFTER_BYTES: usize = 2 << 20;

/// Zeroed memory, backed where it is touched, left out of core dumps.
fn map(bytes: usize) -> Option<Reservation> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing else.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: advice on the mapping just made; its content does not change.
    unsafe { libc::madvise(at, bytes, libc::MADV_DONTDUMP) };
    Some(Reservation { base: at as usize, len_bytes: bytes, wiped_on_fork: false })
}

fn register_membarrier() -> io::Result<()> {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

fn membarrier(command: libc::c_int) -> io::Result<()> {
    // SAFETY: membarrier takes no pointers.
    let rc = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::test_memory::Memory;

    #[test]
    fn reservations_are_zeroed_and_cost_nothing_untouched() {
        let host = LinuxHost::new();
        let Some(r) = host.reserve(64 << 30) else {
            println!("skipped: 64 GiB of address space are not to be had (ulimit -v?)");
            return;
        };
        let last = (r.base + r.len_bytes - 8) as *mut u64;
        // SAFETY: the last word of a fresh mapping of ours.
        let (before, after) = unsafe {
            let before = last.read_volatile();
            last.write_volatile(7);
            (before, last.read_volatile())
        };
        assert_eq!((before, after, r.wiped_on_fork), (0, 7, true));
        // SAFETY: reserved above; `last` is not used again.
        unsafe { host.release(r) };
    }

    #[test]
    fn the_mapping_around_a_range() {
        let host = LinuxHost::new();
        let memory = Memory::anonymous_alone(8);
        let inner = memory.pages(2, 3);
        let found = host.mapping(inner).unwrap();
        assert_eq!((found.range, found.readable, found.writable), (memory.pages(0, 8), true, true));
        assert_eq!(host.mapping(PageRange::new(0x1000, 0x2000).unwrap()), None);
        let beyond = PageRange::new(inner.start(), memory.pages(0, 8).end() + 4096).unwrap();
        assert_eq!(host.mapping(beyond), None, "no one mapping holds it");
    }

    #[test]
    fn fence_and_clock() {
        let host = LinuxHost::new();
        if host.has_asymmetric_fence() {
            host.asymmetric_fence();
        }
        let t = host.now_ns();
        assert!(t > 0 && host.now_ns() >= t);
    }
}
