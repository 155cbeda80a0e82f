//! malloc's blocks, the program break, and stacks.

use std::io;

use super::{PAGE_BYTES, Span, check};

/// A block of the C library's allocator.
#[derive(Debug)]
pub(crate) struct Block {
    ptr: *mut libc::c_void,
    len: usize,
}

// SAFETY: a block of malloc may be used and freed by any thread; this value owns it.
unsafe impl Send for Block {}

impl Block {
    /// `malloc(len)`. Never freed unless asked: the experiment may have pulled it apart.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        // SAFETY: malloc of a non-zero size.
        let ptr = unsafe { libc::malloc(len) };
        if ptr.is_null() { Err(io::Error::last_os_error()) } else { Ok(Self { ptr, len }) }
    }

    pub(crate) fn addr(&self) -> usize {
        self.ptr as usize
    }

    /// Its whole pages, without the first and last, where the allocator's own words are.
    pub(crate) fn interior(&self) -> Span {
        let base = (self.addr() + 1).next_multiple_of(PAGE_BYTES);
        let end = (self.addr() + self.len) / PAGE_BYTES * PAGE_BYTES - PAGE_BYTES;
        // SAFETY: inside a block that only this value refers to, a page away from its header.
        unsafe { Span::new(base, end - base) }
    }

    /// `free`.
    pub(crate) fn free(self) {
        // SAFETY: from malloc or realloc, freed once (self is consumed).
        unsafe { libc::free(self.ptr) };
    }

    /// `realloc`.
    pub(crate) fn resize(self, len: usize) -> io::Result<Self> {
        // SAFETY: from malloc or realloc; the old pointer is gone with self.
        let ptr = unsafe { libc::realloc(self.ptr, len) };
        if ptr.is_null() { Err(io::Error::last_os_error()) } else { Ok(Self { ptr, len }) }
    }
}

/// `malloc_trim(0)`: gives free pages back to the kernel.
pub(crate) fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes an integer; touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Memory between two program breaks.
#[derive(Debug)]
pub(crate) struct ProgramBreak {
    end: usize,
}

impl ProgramBreak {
    /// Moves the break up by `len` bytes; the span is the new memory.
    pub(crate) fn grow(len: usize) -> io::Result<(Self, Span)> {
        pad_heap();
        let start = current()?.next_multiple_of(PAGE_BYTES);
        set(start + len)?;
        // SAFETY: new memory above the allocator's heap; it never looks above what it asked for.
        Ok((Self { end: start + len }, unsafe { Span::new(start, len) }))
    }

    /// Whether nobody moved the break since.
    fn is_ours(&self) -> io::Result<()> {
        match current()? == self.end {
            true => Ok(()),
            false => Err(io::Error::other("the allocator moved the program break meanwhile")),
        }
    }

    /// Moves the break to `to`, which is inside the span or its end.
    pub(crate) fn move_to(&mut self, to: usize) -> io::Result<()> {
        self.is_ours()?;
        set(to)?;
        self.end = to;
        Ok(())
    }
}

/// Lets the allocator take 8 MiB of heap now, and keep them, so that it does not move the break
/// during the experiment.
fn pad_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes integers; the block is freed at once.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, 64 << 20);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 16 << 20); // so that the block comes from the heap
        libc::free(std::hint::black_box(libc::malloc(8 << 20))); // an unused block would be optimised out
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}

fn current() -> io::Result<usize> {
    // SAFETY: sbrk(0) only asks.
    check(unsafe { libc::sbrk(0) } as i64).map(|at| at as usize)
}

fn set(to: usize) -> io::Result<()> {
    // SAFETY: callers move the break within memory that they put above the allocator's heap.
    check(unsafe { libc::brk(to as *mut libc::c_void) }).map(drop)
}

/// Calls `work` with a span of `PAGES` pages in this thread's own stack.
#[inline(never)]
pub(crate) fn with_stack_span<R>(work: impl FnOnce(Span) -> R) -> R {
    const PAGES: usize = 8;
    let mut frame = [std::mem::MaybeUninit::<u8>::uninit(); (PAGES + 1) * PAGE_BYTES];
    let base = (frame.as_mut_ptr() as usize).next_multiple_of(PAGE_BYTES);
    // SAFETY: inside the array, which nothing else uses until `work` returned. Deeper frames lie below.
    let result = work(unsafe { Span::new(base, PAGES * PAGE_BYTES) });
    std::hint::black_box(frame.as_mut_ptr());
    result
}
