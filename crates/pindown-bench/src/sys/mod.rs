//! System calls of the benchmark.

use std::time::Instant;

const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Memory of the benchmark's own, which only addresses of are used.
#[derive(Debug)]
pub(crate) struct Memory {
    at: usize,
    len: usize,
}

impl Memory {
    /// Address space that cannot be accessed: what is registered is never touched.
    pub(crate) fn reserve(len: usize) -> Result<Self, String> {
        Self::map(len, libc::PROT_NONE)
    }

    /// Memory that can be accessed.
    pub(crate) fn new(len: usize) -> Result<Self, String> {
        Self::map(len, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn map(len: usize, prot: i32) -> Result<Self, String> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, PRIVATE, -1, 0) };
        match at == libc::MAP_FAILED {
            true => Err(format!("no {len} bytes of address space: {}", std::io::Error::last_os_error())),
            false => Ok(Self { at: at as usize, len }),
        }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Writes to the first page of memory that can be accessed.
    pub(crate) fn touch(&self) {
        // SAFETY: mapped by `new` for this value alone; writing a byte of it is always allowed.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(self.at).write_volatile(1) }
    }

    /// Unmaps it by libc's function, which some caches patch; nanoseconds.
    pub(crate) fn unmap(self) -> f64 {
        let started = Instant::now();
        // SAFETY: this value's mapping, to which nothing refers: it is registered with no device.
        unsafe { libc::munmap(self.at as *mut libc::c_void, self.len) };
        let ns = ns_since(started);
        std::mem::forget(self);
        ns
    }

    /// Unmaps it past libc; nanoseconds.
    pub(crate) fn unmap_raw(self) -> f64 {
        let started = Instant::now();
        // SAFETY: as in `unmap`.
        unsafe { libc::syscall(libc::SYS_munmap, self.at, self.len) };
        let ns = ns_since(started);
        std::mem::forget(self);
        ns
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: as in `unmap`.
        unsafe { libc::munmap(self.at as *mut libc::c_void, self.len) };
    }
}

pub(crate) fn ns_since(started: Instant) -> f64 {
    started.elapsed().as_nanos() as f64
}

/// The processors that this process may use.
pub(crate) fn processors() -> Vec<usize> {
    // SAFETY: all-zero bytes are a valid, empty set; the kernel writes a set of the size given.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        set
    };
    // SAFETY: the numbers are within the set's size.
    (0..libc::CPU_SETSIZE as usize).filter(|n| unsafe { libc::CPU_ISSET(*n, &set) }).collect()
}

/// Keeps the calling thread on one processor. Without effect where that is refused.
pub(crate) fn pin_to(processor: usize) {
    // SAFETY: all-zero bytes are a valid, empty set; the number came from `processors`.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Resident bytes of this process.
pub(crate) fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<f64>().ok());
    pages.unwrap_or(0.0) * 4096.0
}
