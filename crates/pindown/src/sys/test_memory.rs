//! Mappings for tests: made, changed in every way, and unmapped at the end.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

use pindown_core::{PAGE_SIZE, PageRange};

/// A mapping with an unmapped or inaccessible page on both sides, so that it is a mapping by itself.
#[derive(Debug)]
pub(crate) struct Memory {
    base: usize,
    pages: usize,
}

const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
const ANON: i32 = libc::MAP_ANONYMOUS;

impl Memory {
    pub(crate) fn anonymous(pages: usize) -> Self {
        Self::anonymous_alone(pages)
    }

    pub(crate) fn anonymous_alone(pages: usize) -> Self {
        Self::map(pages, RW, libc::MAP_PRIVATE | ANON, -1)
    }

    /// Anonymous memory that no swap is set aside for.
    pub(crate) fn reserved(pages: usize) -> Self {
        Self::map(pages, RW, libc::MAP_PRIVATE | ANON | libc::MAP_NORESERVE, -1)
    }

    /// Two huge pages of the pool, private and anonymous, by themselves; `None`: the pool is empty.
    pub(crate) fn huge() -> Option<Self> {
        const HUGE: usize = 2 << 20;
        let flags = libc::MAP_PRIVATE | ANON | libc::MAP_HUGETLB | libc::MAP_FIXED;
        let around = Self::reserved(4 * HUGE / PAGE_SIZE);
        let base = around.addr().next_multiple_of(HUGE);
        // SAFETY: over part of the reservation, which this test alone uses and which is not given back.
        let at = unsafe { libc::mmap(base as *mut libc::c_void, 2 * HUGE, RW, flags, -1, 0) };
        std::mem::forget(around);
        (at as usize == base).then_some(Self { base, pages: 2 * HUGE / PAGE_SIZE })
    }

    pub(crate) fn shared_anonymous(pages: usize) -> Self {
        Self::map(pages, RW, libc::MAP_SHARED | ANON, -1)
    }

    pub(crate) fn of_file(file: &File, pages: usize, shared: bool) -> Self {
        let flags = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        Self::map(pages, RW, flags, file.as_raw_fd())
    }

    pub(crate) fn of_file_read_only(file: &File, pages: usize) -> Self {
        Self::map(pages, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd())
    }

    fn map(pages: usize, prot: i32, flags: i32, fd: i32) -> Self {
        let around = (pages + 2) * PAGE_SIZE;
        let none = libc::MAP_PRIVATE | ANON | libc::MAP_NORESERVE;
        // SAFETY: a fresh inaccessible mapping, then one over its inner pages, which are ours.
        let base = unsafe {
            let outer = libc::mmap(std::ptr::null_mut(), around, libc::PROT_NONE, none, -1, 0);
            assert_ne!(outer, libc::MAP_FAILED);
            let inner = outer.add(PAGE_SIZE);
            let at = libc::mmap(inner, pages * PAGE_SIZE, prot, flags | libc::MAP_FIXED, fd, 0);
            assert_eq!(at, inner, "{}", std::io::Error::last_os_error());
            inner as usize
        };
        Self { base, pages }
    }

    pub(crate) fn addr(&self) -> usize {
        self.base
    }

    /// `count` pages from page `first` of it.
    pub(crate) fn pages(&self, first: usize, count: usize) -> PageRange {
        let start = self.base + first * PAGE_SIZE;
        PageRange::new(start, start + count * PAGE_SIZE).unwrap()
    }
}

/// `madvise(2)`; the error number on failure.
pub(crate) fn madvise(range: PageRange, advice: i32) -> Result<(), i32> {
    // SAFETY: tests pass their own memory and hold no references to it.
    let rc = unsafe { libc::madvise(range.start() as *mut libc::c_void, range.len_bytes(), advice) };
    if rc == 0 { Ok(()) } else { Err(errno()) }
}

pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// munmap, leaving a hole that the owner's drop unmaps again: only inside `Memory`'s guards, and
/// put back as an inaccessible mapping at once where other threads could take the hole.
pub(crate) fn munmap(range: PageRange) {
    // SAFETY: tests pass their own memory and hold no references to it.
    assert_eq!(unsafe { libc::munmap(range.start() as *mut libc::c_void, range.len_bytes()) }, 0);
}

/// Fresh private pages over `range`.
pub(crate) fn map_over(range: PageRange) {
    let flags = libc::MAP_PRIVATE | ANON | libc::MAP_FIXED;
    // SAFETY: tests pass their own memory and hold no references to it.
    let at = unsafe { libc::mmap(range.start() as *mut libc::c_void, range.len_bytes(), RW, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
}

/// mremap of `range` onto `to`, of the same length, with extra `flags`.
pub(crate) fn mremap_onto(range: PageRange, to: PageRange, flags: i32) -> Result<(), i32> {
    let (flags, len) = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | flags, range.len_bytes());
    // SAFETY: tests pass their own memory and hold no references to it.
    let at =
        unsafe { libc::mremap(range.start() as *mut _, len, len, flags, to.start() as *mut libc::c_void) };
    if at == libc::MAP_FAILED { Err(errno()) } else { Ok(()) }
}

/// mremap in place to fewer pages.
pub(crate) fn mremap_shrink(range: PageRange, pages: usize) {
    // SAFETY: tests pass their own memory and hold no references to it.
    let at = unsafe { libc::mremap(range.start() as *mut _, range.len_bytes(), pages * PAGE_SIZE, 0) };
    assert_ne!(at, libc::MAP_FAILED);
}

/// Writes to each page.
pub(crate) fn touch(range: PageRange, value: u8) {
    for page in (range.start()..range.end()).step_by(PAGE_SIZE) {
        // SAFETY: tests pass their own writable memory and hold no references to it.
        unsafe { (page as *mut u8).write_volatile(value) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let start = self.base - PAGE_SIZE;
        // SAFETY: the mapping and its guards were made by `map` and end with their owner.
        unsafe { libc::munmap(start as *mut libc::c_void, (self.pages + 2) * PAGE_SIZE) };
    }
}

/// A memfd of `pages` pages.
pub(crate) fn memfd(pages: usize) -> File {
    // SAFETY: the name is a C string; the descriptor returned is new and owned by the file.
    let file = unsafe {
        let fd = libc::memfd_create(c"pindown-test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    };
    file.set_len((pages * PAGE_SIZE) as u64).unwrap();
    file
}
