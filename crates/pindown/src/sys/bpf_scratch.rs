//! Memory of our own on which a monitor's self-test makes every class of change.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::null_mut;

use pindown_core::{PAGE_SIZE, PageRange};

const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
const MADV_GUARD_INSTALL: i32 = 102;

/// Touched pages that nobody else refers to. Unmapped when dropped, whatever became of them.
#[derive(Debug)]
pub(crate) struct Scratch {
    base: usize,
    len_bytes: usize,
}

fn check(rc: i64) -> io::Result<()> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes a system call on scratch memory.
///
/// # Safety
///
/// The arguments name scratch memory only, to which no reference exists.
unsafe fn call(number: i64, a: [usize; 5]) -> io::Result<()> {
    // SAFETY: the caller's promise.
    check(unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4]) })
}

impl Scratch {
    fn map(len_bytes: usize, flags: i32, fd: i32) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe { libc::mmap(null_mut(), len_bytes, RW, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let scratch = Self { base: base as usize, len_bytes };
        scratch.touch();
        Ok(scratch)
    }

    /// Writes to each page.
    pub(crate) fn touch(&self) {
        for at in (self.base..self.base + self.len_bytes).step_by(PAGE_SIZE) {
            // SAFETY: mapped writable by the constructor, and no reference to it exists.
            unsafe { (at as *mut u8).write_volatile(1) };
        }
    }

    /// Private memory.
    pub(crate) fn anonymous(pages: usize) -> io::Result<Self> {
        Self::map(pages * PAGE_SIZE, ANONYMOUS, -1)
    }

    /// One huge page of the pool; an error when the pool is empty.
    pub(crate) fn huge() -> io::Result<Self> {
        Self::map(2 << 20, ANONYMOUS | libc::MAP_HUGETLB, -1)
    }

    /// 2 MiB of memory that are one transparent huge page; an error when the kernel gives none.
    pub(crate) fn transparent_huge() -> io::Result<Self> {
        let around = Self::map_untouched(4 << 20)?;
        let base = around.base.next_multiple_of(2 << 20);
        let (head, tail) = (base - around.base, around.base + around.len_bytes - base - (2 << 20));
        let (start, scratch) = (around.base, Self { base, len_bytes: 2 << 20 });
        std::mem::forget(around);
        for (at, len) in [(start, head), (base + (2 << 20), tail)] {
            if len > 0 {
                // SAFETY: the untouched rest of the mapping just made.
                unsafe { libc::munmap(at as *mut _, len) };
            }
        }
        // SAFETY: advice about scratch memory.
        unsafe { libc::madvise(base as *mut _, 2 << 20, libc::MADV_HUGEPAGE) };
        scratch.touch();
        if scratch.is_one_huge_page() { Ok(scratch) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    /// As `/proc/self/smaps` says. Only that mapping's lines are of use, so the file is not kept whole.
    fn is_one_huge_page(&self) -> bool {
        let Ok(file) = File::open("/proc/self/smaps") else { return false };
        let mut lines = io::BufRead::lines(io::BufReader::new(file)).map_while(Result::ok);
        let head = format!("{:x}-", self.base);
        let found = lines.find(|l| l.starts_with(&head)).is_some();
        let huge = lines.find_map(|l| l.strip_prefix("AnonHugePages:").map(|v| v.trim() == "2048 kB"));
        found && huge == Some(true)
    }

    fn map_untouched(len_bytes: usize) -> io::Result<Self> {
        // SAFETY: as in `map`.
        let base = unsafe { libc::mmap(null_mut(), len_bytes, RW, ANONYMOUS, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base as usize, len_bytes })
    }

    /// A memfd and its pages, mapped shared.
    pub(crate) fn memfd(pages: usize) -> io::Result<(File, Self)> {
        // SAFETY: a constant, terminated name.
        let fd = unsafe { libc::memfd_create(c"pindown-self-test".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened for us.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len((pages * PAGE_SIZE) as u64)?;
        let scratch = Self::map(pages * PAGE_SIZE, libc::MAP_SHARED, file.as_raw_fd())?;
        Ok((file, scratch))
    }

    /// Some pages of it, which stay its own.
    #[cfg(test)]
    pub(crate) fn slice(&self, first: usize, pages: usize) -> std::mem::ManuallyDrop<Self> {
        assert!((first + pages) * PAGE_SIZE <= self.len_bytes);
        std::mem::ManuallyDrop::new(Self {
            base: self.base + first * PAGE_SIZE,
            len_bytes: pages * PAGE_SIZE,
        })
    }

    /// The first page of a file, mapped private.
    #[cfg(test)]
    pub(crate) fn private_of(path: &std::path::Path) -> io::Result<Self> {
        Self::map(PAGE_SIZE, libc::MAP_PRIVATE, File::open(path)?.as_raw_fd())
    }

    /// Where it is.
    pub(crate) fn range(&self) -> PageRange {
        PageRange::covering(self.base, self.len_bytes).expect("what is mapped is a range")
    }

    fn args(&self, rest: [usize; 3]) -> [usize; 5] {
        [self.base, self.len_bytes, rest[0], rest[1], rest[2]]
    }

    /// `munmap(2)`. It is gone afterwards: another thread may map there.
    pub(crate) fn unmap(self) -> io::Result<()> {
        let args = self.args([0, 0, 0]);
        std::mem::forget(self);
        // SAFETY: scratch memory, as for all below.
        unsafe { call(libc::SYS_munmap, args) }
    }

    /// `mmap(2)` of fresh memory over it.
    pub(crate) fn map_over(&self) -> io::Result<()> {
        let flags = (ANONYMOUS | libc::MAP_FIXED) as usize;
        // SAFETY: replaces scratch memory.
        unsafe { call(libc::SYS_mmap, self.args([RW as usize, flags, usize::MAX])) }
    }

    /// `madvise(2)`.
    pub(crate) fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: scratch memory.
        unsafe { call(libc::SYS_madvise, self.args([advice as usize, 0, 0])) }
    }

    /// MADV_DONTNEED by one of io_uring's workers.
    #[cfg(all(test, feature = "io-uring"))]
    pub(crate) fn discard_through_ring(&self) -> io::Result<()> {
        self.advise_through_ring(libc::MADV_DONTNEED)
    }

    /// An advice that no kernel knows, given to one of io_uring's workers: it must refuse.
    #[cfg(feature = "io-uring")]
    pub(crate) fn ask_through_ring(&self) -> io::Result<()> {
        match self.advise_through_ring(super::bpf::ASK as i32) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            other => other,
        }
    }

    #[cfg(feature = "io-uring")]
    fn advise_through_ring(&self, advice: i32) -> io::Result<()> {
        let mut ring = io_uring::IoUring::new(2)?;
        let (at, len) = (self.base as *const libc::c_void, self.len_bytes as i64);
        let entry = io_uring::opcode::Madvise::new(at, len, advice).build();
        // SAFETY: scratch memory, which lives until the completion is waited for below.
        unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
        ring.submit_and_wait(1)?;
        let result = ring.completion().next().map_or(-libc::EIO, |c| c.result());
        if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
    }

    /// MADV_GUARD_INSTALL (Linux 6.13).
    pub(crate) fn guard(&self) -> io::Result<()> {
        self.advise(MADV_GUARD_INSTALL)
    }

    /// `mprotect(2)` to read-only.
    pub(crate) fn protect(&self) -> io::Result<()> {
        // SAFETY: scratch memory; it is not written again.
        unsafe { call(libc::SYS_mprotect, self.args([libc::PROT_READ as usize, 0, 0])) }
    }

    /// `mremap(2)` to another place; the pages end up in `target`.
    pub(crate) fn move_to(self, target: &Self, keep_mapping: bool) -> io::Result<()> {
        let keep = if keep_mapping { libc::MREMAP_DONTUNMAP } else { 0 };
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | keep;
        // SAFETY: source and target are scratch memory of the same length.
        let moved =
            unsafe { call(libc::SYS_mremap, self.args([self.len_bytes, flags as usize, target.base])) };
        if moved.is_ok() && !keep_mapping {
            std::mem::forget(self); // unmapped: another thread may map there
        }
        moved
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: still mapped and ours: what unmaps it consumes it without coming here.
        unsafe { libc::munmap(self.base as *mut _, self.len_bytes) };
    }
}

/// Cuts a hole of one page into a file (`fallocate(2)`).
pub(crate) fn punch_hole(file: &File) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a descriptor of ours.
    check(i64::from(unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, PAGE_SIZE as libc::off_t) }))
}
