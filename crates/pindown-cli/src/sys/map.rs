//! mmap and mremap.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{HUGE_BYTES, Span, check, check_map};

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// What to map.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    Anonymous { shared: bool, huge: bool },
    File { fd: BorrowedFd<'a>, shared: bool, offset: usize, prot: i32 },
}

/// Whether to go through libc's function or straight to the kernel, past anything that patched libc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    Libc,
    Raw,
}

/// 64 MiB of reserved, inaccessible address space that experiments take their places from. What
/// is not in use stays PROT_NONE, so that no allocation of anyone else lands beside a span.
#[derive(Debug)]
pub(crate) struct Arena {
    base: usize,
}

impl Arena {
    const LEN: usize = 64 << 20;
    /// Room for the memory under test, with as much after it to grow into.
    const SLOT: usize = 16 << 20;

    /// Reserves it; never given back (a cell's process ends soon).
    pub(crate) fn reserve() -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = check_map(unsafe {
            libc::mmap(std::ptr::null_mut(), Self::LEN + HUGE_BYTES, libc::PROT_NONE, flags, -1, 0)
        })?;
        Ok(Self { base: base.next_multiple_of(HUGE_BYTES) })
    }

    /// `len` bytes of slot 0 (the memory under test), 1 (what it moves to) or 2 (scratch).
    /// Slots begin on a huge page; slot 0 leaves one huge page before it.
    pub(crate) fn place(&self, slot: usize, len: usize) -> Span {
        assert!(slot < 3 && len <= Self::SLOT - HUGE_BYTES);
        // SAFETY: inside the arena, which is used for nothing but spans.
        unsafe { Span::new(self.base + slot * Self::SLOT + HUGE_BYTES, len) }
    }

    /// A page before and a page after `span` along with it.
    pub(crate) fn around(&self, span: Span, margin: usize) -> Span {
        let (base, len) = (span.base() - margin, span.len_bytes() + 2 * margin);
        assert!(base >= self.base && base + len <= self.base + Self::LEN);
        // SAFETY: inside the arena.
        unsafe { Span::new(base, len) }
    }
}

/// New private anonymous memory, anywhere.
pub(crate) fn map_new(len: usize) -> io::Result<Span> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = check_map(unsafe { libc::mmap(std::ptr::null_mut(), len, READ_WRITE, flags, -1, 0) })?;
    // SAFETY: just mapped, for the caller alone.
    Ok(unsafe { Span::new(base, len) })
}

/// New private anonymous memory where a hole in it stays a hole: far below the addresses that the
/// kernel gives out by itself (it fills the highest hole first, `arch_get_unmapped_area_topdown`;
/// with the legacy layout it starts above). While one thread has part of it unmapped, another's
/// malloc is not put there, to be mapped over a moment later.
pub(crate) fn map_apart(len: usize) -> io::Result<Span> {
    static NEXT: AtomicUsize = AtomicUsize::new(0x1000_0000_0000);
    const TRIES: usize = 64;
    const ALIGN: usize = 2 << 20;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    for _ in 0..TRIES {
        let at = NEXT.fetch_add(len.next_multiple_of(ALIGN) + ALIGN, Ordering::Relaxed);
        // SAFETY: MAP_FIXED_NOREPLACE maps only where nothing is.
        let ret = unsafe { libc::mmap(std::ptr::without_provenance_mut(at), len, READ_WRITE, flags, -1, 0) };
        match check_map(ret) {
            // SAFETY: just mapped, for the caller alone.
            Ok(base) => return Ok(unsafe { Span::new(base, len) }),
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            Err(error) => return Err(error),
        }
    }
    map_new(len)
}

/// Maps `source` over `span`, whatever was there.
pub(crate) fn map_over(span: Span, source: Source<'_>, via: Via) -> io::Result<()> {
    let (prot, flags, fd, offset) = match source {
        Source::Anonymous { shared, huge } => {
            let sharing = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
            let huge = if huge { libc::MAP_HUGETLB } else { 0 };
            (READ_WRITE, sharing | libc::MAP_ANONYMOUS | huge, -1, 0)
        }
        Source::File { fd, shared, offset, prot } => {
            let sharing = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
            (prot, sharing, fd.as_raw_fd(), offset)
        }
    };
    let flags = flags | libc::MAP_FIXED;
    // SAFETY: only the span is replaced, which nothing else uses (its invariant).
    let ret = unsafe {
        match via {
            Via::Libc => libc::mmap(span.void(), span.len_bytes(), prot, flags, fd, offset as libc::off_t),
            Via::Raw => libc::syscall(libc::SYS_mmap, span.base(), span.len_bytes(), prot, flags, fd, offset)
                as *mut libc::c_void,
        }
    };
    check_map(ret).map(drop)
}

/// Unmaps `span`.
pub(crate) fn unmap(span: Span, via: Via) -> io::Result<()> {
    // SAFETY: nothing else uses the span (its invariant).
    check(unsafe {
        match via {
            Via::Libc => i64::from(libc::munmap(span.void(), span.len_bytes())),
            Via::Raw => libc::syscall(libc::SYS_munmap, span.base(), span.len_bytes()),
        }
    })
    .map(drop)
}

/// Changes the length of `span`'s mapping without moving it.
pub(crate) fn resize_in_place(span: Span, new_len: usize) -> io::Result<()> {
    // SAFETY: no MREMAP_MAYMOVE: shrinks or grows only the span, growing only where nothing is mapped.
    check_map(unsafe { libc::mremap(span.void(), span.len_bytes(), new_len, 0) }).map(drop)
}

/// Moves `span` onto `to`, replacing what was there.
pub(crate) fn move_onto(span: Span, to: Span, via: Via) -> io::Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: both are spans, used by nothing else.
    let ret = unsafe {
        match via {
            Via::Libc => libc::mremap(span.void(), span.len_bytes(), to.len_bytes(), flags, to.void()),
            Via::Raw => {
                let (from, old, new) = (span.base(), span.len_bytes(), to.len_bytes());
                libc::syscall(libc::SYS_mremap, from, old, new, flags, to.base()) as *mut libc::c_void
            }
        }
    };
    check_map(ret).map(drop)
}

/// Moves the pages of `span` elsewhere and leaves the mapping, empty (MREMAP_DONTUNMAP, Linux 5.7).
pub(crate) fn move_pages_away(span: Span) -> io::Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
    // SAFETY: the span keeps its mapping; the pages go to a new place of the kernel's choice.
    check_map(unsafe { libc::mremap(span.void(), span.len_bytes(), span.len_bytes(), flags, 0) }).map(drop)
}

/// Grows `span` to `new_len`, wherever there is room.
pub(crate) fn grow_moving(span: Span, new_len: usize) -> io::Result<()> {
    // SAFETY: the span moves to a new place of the kernel's choice or stays; nothing else uses it.
    let ret = unsafe { libc::mremap(span.void(), span.len_bytes(), new_len, libc::MREMAP_MAYMOVE) };
    check_map(ret).map(drop)
}

/// `remap_file_pages(2)`: shows the file's page `file_page` at `span`.
pub(crate) fn remap_file_page(span: Span, file_page: usize) -> io::Result<()> {
    // SAFETY: only the span's mapping changes.
    check(unsafe { libc::remap_file_pages(span.void(), span.len_bytes(), 0, file_page, 0) }).map(drop)
}

/// `process_madvise(2)` on the own process (MADV_DONTNEED: Linux 6.13).
pub(crate) fn process_madvise_self(span: Span, advice: i32) -> io::Result<()> {
    // SAFETY: pidfd_open takes a pid; the own one exists.
    let pidfd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) })?;
    let iov = libc::iovec { iov_base: span.void(), iov_len: span.len_bytes() };
    // SAFETY: one iovec that lives across the call; a span's contents are nobody else's concern.
    let ret = unsafe { libc::syscall(libc::SYS_process_madvise, pidfd, &raw const iov, 1, advice, 0) };
    let result = check(ret);
    // SAFETY: the descriptor was made above and is used nowhere else.
    unsafe { libc::close(pidfd as i32) };
    result.map(drop)
}

/// `madvise(2)` past libc.
pub(crate) fn madvise_raw(span: Span, advice: i32) -> io::Result<()> {
    // SAFETY: as [`Span::advise`].
    check(unsafe { libc::syscall(libc::SYS_madvise, span.base(), span.len_bytes(), advice) }).map(drop)
}

/// `mlock(2)` or `munlock(2)`.
pub(crate) fn lock_pages(span: Span, lock: bool) -> io::Result<()> {
    // SAFETY: locking changes no contents.
    check(unsafe {
        if lock {
            libc::mlock(span.void(), span.len_bytes())
        } else {
            libc::munlock(span.void(), span.len_bytes())
        }
    })
    .map(drop)
}

/// `msync(2)`.
pub(crate) fn sync_pages(span: Span, flags: i32) -> io::Result<()> {
    // SAFETY: writes back the span's dirty pages; changes no memory.
    check(unsafe { libc::msync(span.void(), span.len_bytes(), flags) }).map(drop)
}
