//! Memory of pindown's own that self-tests change in every way.

use std::io;

use pindown_core::{PAGE_SIZE, PageRange};

/// A private anonymous mapping, touched, and unmapped at the end.
#[derive(Debug)]
pub(crate) struct Scratch {
    base: usize,
    pages: usize,
}

const RW: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
const ANONYMOUS: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

fn ok(failed: bool) -> io::Result<()> {
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Scratch {
    pub(crate) fn new(pages: usize) -> io::Result<Self> {
        let flags = ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a mapping at an address of the kernel's choice touches nothing else.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), pages * PAGE_SIZE, RW, flags, -1, 0) };
        ok(at == libc::MAP_FAILED)?;
        Ok(Self { base: at as usize, pages })
    }

    /// `count` pages from page `first`.
    pub(crate) fn pages(&self, first: usize, count: usize) -> PageRange {
        debug_assert!(first + count <= self.pages);
        PageRange::from_pages((self.base / PAGE_SIZE + first) as u64, count as u64)
            .expect("a mapping lies in the address space")
    }

    /// All of it.
    pub(crate) fn all(&self) -> PageRange {
        self.pages(0, self.pages)
    }

    fn own(&self, range: PageRange) -> (*mut libc::c_void, usize) {
        assert!(self.all().contains(range));
        (range.start() as *mut libc::c_void, range.len_bytes())
    }

    /// MADV_DONTNEED.
    pub(crate) fn discard(&self, range: PageRange) -> io::Result<()> {
        let (at, len) = self.own(range);
        // SAFETY: part of this scratch memory, to which there are no references.
        ok(unsafe { libc::madvise(at, len, libc::MADV_DONTNEED) } != 0)
    }

    /// Fresh pages by mmap over them.
    pub(crate) fn replace(&self, range: PageRange) -> io::Result<()> {
        let (at, len) = self.own(range);
        // SAFETY: part of this scratch memory, to which there are no references.
        ok(unsafe { libc::mmap(at, len, RW, ANONYMOUS | libc::MAP_FIXED, -1, 0) } == libc::MAP_FAILED)
    }

    /// mremap of the whole to another place, its place from then on.
    pub(crate) fn relocate(&mut self) -> io::Result<()> {
        let (at, len) = self.own(self.all());
        // SAFETY: this scratch memory, to which there are no references, onto a place that was
        // reserved for it a line before.
        unsafe {
            let to = libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, ANONYMOUS, -1, 0);
            ok(to == libc::MAP_FAILED)?;
            let moved = libc::mremap(at, len, len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, to);
            let result = ok(moved == libc::MAP_FAILED);
            if result.is_err() {
                libc::munmap(to, len);
            } else {
                self.base = to as usize;
            }
            result
        }
    }

    /// munmap of the whole.
    pub(crate) fn unmap(self) -> io::Result<()> {
        let (at, len) = self.own(self.all());
        std::mem::forget(self);
        // SAFETY: this scratch memory, to which there are no references; its owner is gone.
        ok(unsafe { libc::munmap(at, len) } != 0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: made by `new` and not handed out.
        unsafe { libc::munmap(self.base as *mut libc::c_void, self.pages * PAGE_SIZE) };
    }
}
