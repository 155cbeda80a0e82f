//! The pages that a watched process shares with the programs. The mirror of `bpf/state.h`.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Clients of one set of programs.
pub(crate) const SLOTS: u32 = 256;
/// Monitors in one process.
pub(crate) const SLOTS_PER_MM: usize = 7;
/// log2 of the filter's grain in bytes.
pub(crate) const CHUNK_SHIFT: u32 = 21;
/// Words of each of the filter's bitmaps.
pub(crate) const CHUNK_WORDS: usize = 512;
/// Room for the programs' numbers.
pub(crate) const HOOKS: usize = 16;

/// Written by the programs alone (`struct status`).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Status {
    pub(crate) generation: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) uring_madvise: AtomicU64,
    pub(crate) files: AtomicU64,
    pub(crate) asked: AtomicU64,
    pub(crate) answer: AtomicU64,
    pub(crate) vma_start: AtomicU64,
    pub(crate) vma_end: AtomicU64,
    pub(crate) break_high: AtomicU64,
    pub(crate) seen: [AtomicU64; HOOKS],
}

/// Written by the client alone (`struct filter`).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Filter {
    pub(crate) ranges: AtomicU64,
    pub(crate) remote: AtomicU64,
    pub(crate) wake: AtomicU64,
    pub(crate) chunks: [AtomicU64; CHUNK_WORDS],
    pub(crate) remote_chunks: [AtomicU64; CHUNK_WORDS],
}

/// One record of the ring (`struct record`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Record {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) kind: u32,
    pub(crate) hook: u32,
}

/// Plain structs of atomics: every bit pattern is valid, and they may change at any time.
pub(crate) trait Page: Sized {
    /// Whether this process may write it.
    const WRITABLE: bool;
}
impl Page for Status {
    const WRITABLE: bool = false;
}
impl Page for Filter {
    const WRITABLE: bool = true;
}

/// `mmap(2)` of a map's descriptor, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapped {
    base: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: it owns the mapping, which any thread may read, and unmap once (Drop).
unsafe impl Send for Mapped {}
// SAFETY: shared access only ever makes atomic accesses or (ring data) reads that `BpfRing` orders.
unsafe impl Sync for Mapped {}

impl Mapped {
    pub(crate) fn new(
        fd: BorrowedFd<'_>,
        offset: usize,
        len_bytes: usize,
        writable: bool,
    ) -> io::Result<Self> {
        let prot = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len_bytes,
                prot,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { base, len_bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The word at `offset` bytes.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len_bytes);
        // SAFETY: aligned (the base is a page's) and inside the mapping, which lives as long as self.
        unsafe { self.base.add(offset).cast::<AtomicU64>().as_ref() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and, since this is its owner's end, nothing borrows from it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len_bytes) };
    }
}

/// A `T` in a mapped map.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    mapped: Mapped,
    of: std::marker::PhantomData<T>,
}

impl<T: Page> Shared<T> {
    pub(crate) fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let len = size_of::<T>().next_multiple_of(4096);
        Ok(Self { mapped: Mapped::new(fd, 0, len, T::WRITABLE)?, of: std::marker::PhantomData })
    }
}

impl<T: Page> Deref for Shared<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: page-aligned, at least `size_of::<T>()` long, and valid whatever it holds (`Page`).
        // Where it is read-only, only loads are made: of 8 bytes, which are plain loads on x86-64.
        unsafe { self.mapped.base.cast::<T>().as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_the_programs() {
        assert_eq!(size_of::<Status>(), 8 * (9 + HOOKS));
        assert_eq!(std::mem::offset_of!(Filter, chunks), 24);
        assert_eq!(size_of::<Filter>(), 24 + 2 * 4096);
        assert_eq!(size_of::<Record>(), 24);
    }
}
