//! [`Span`]: memory set aside for an experiment.

use std::io;

use super::{PAGE_BYTES, check, check_map};

/// A range of addresses that this process has set aside for an experiment, page-aligned.
///
/// The invariant that makes its functions safe: no Rust reference points into a span and neither
/// an allocator nor the runtime keeps anything in it. Whoever makes one ([`super::Arena`],
/// [`super::Block`], [`super::ProgramBreak`], a frame of [`super::with_stack_span`], shmat) gives
/// it memory that is used for nothing else. So unmapping, moving or replacing it takes nothing
/// away that Rust knows of. Its bytes are read and written through raw pointers alone, and only
/// while [`Span::holes`] is empty: touching a hole kills the cell's process, which its parent reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    base: usize,
    len: usize,
}

impl Span {
    /// # Safety
    ///
    /// The range meets the invariant above for as long as the span is used.
    pub(crate) unsafe fn new(base: usize, len: usize) -> Self {
        debug_assert!(base.is_multiple_of(PAGE_BYTES) && len.is_multiple_of(PAGE_BYTES) && len > 0);
        Self { base, len }
    }

    pub(crate) fn base(self) -> usize {
        self.base
    }

    pub(crate) fn len_bytes(self) -> usize {
        self.len
    }

    pub(crate) fn ptr(self) -> *mut u8 {
        self.base as *mut u8
    }

    pub(super) fn void(self) -> *mut libc::c_void {
        self.base as *mut libc::c_void
    }

    /// `len` bytes from `offset`, both in bytes and inside this span.
    pub(crate) fn part(self, offset: usize, len: usize) -> Self {
        assert!(offset + len <= self.len, "{offset}+{len} is outside of {self:?}");
        Self { base: self.base + offset, len }
    }

    /// The first or second half, in whole pages.
    pub(crate) fn half(self, second: bool) -> Self {
        let half = pages(self.len / 2);
        if second { self.part(half, self.len - half) } else { self.part(0, half) }
    }

    /// About the middle half, in whole pages.
    pub(crate) fn middle(self) -> Self {
        self.part(pages(self.len / 4), pages(self.len / 2))
    }

    /// Where `self` begins within `whole`, in bytes.
    pub(crate) fn offset_in(self, whole: Self) -> usize {
        self.base - whole.base
    }

    /// Writes a pattern that differs for each seed and at each address.
    pub(crate) fn fill(self, seed: u64) {
        for i in 0..self.len / 8 {
            // SAFETY: the word lies in the span, which is mapped writable and aliased by no reference.
            unsafe { (self.base as *mut u64).add(i).write(pattern(seed, i as u64)) };
        }
    }

    /// Reads one byte of each page, as a program that only looks does.
    pub(crate) fn touch_for_read(self) {
        for page in (0..self.len).step_by(PAGE_BYTES) {
            // SAFETY: the byte lies in the span, which is mapped readable.
            unsafe { (self.base as *const u8).add(page).read_volatile() };
        }
    }

    /// What the CPU sees now.
    pub(crate) fn snapshot(self) -> Vec<u8> {
        let mut bytes = vec![0_u8; self.len];
        // SAFETY: source and destination are `len` bytes long and distinct; the span is mapped.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr(), bytes.as_mut_ptr(), self.len) };
        bytes
    }

    /// Writes `bytes` at the start.
    pub(crate) fn write(self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len);
        // SAFETY: the span is mapped writable, at least as long, and distinct from any Rust object.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.ptr(), bytes.len()) };
    }

    /// Copies all bytes to `to`, which is as long.
    pub(crate) fn copy_to(self, to: Self) {
        assert_eq!(self.len, to.len);
        // SAFETY: both are mapped, the destination writable; `copy` allows overlap.
        unsafe { std::ptr::copy(self.ptr(), to.ptr(), self.len) };
    }

    /// Whether the CPU sees exactly `bytes`.
    pub(crate) fn equals(self, bytes: &[u8]) -> bool {
        assert!(bytes.len() <= self.len);
        // SAFETY: both are readable for `bytes.len()` bytes (the span is mapped). memcmp and not a
        // slice: no Rust reference is made to memory that a device may write.
        unsafe { libc::memcmp(self.void(), bytes.as_ptr().cast(), bytes.len()) == 0 }
    }

    /// The parts where nothing is mapped, in order.
    pub(crate) fn holes(self) -> Vec<Self> {
        let mut holes: Vec<Self> = Vec::new();
        for page in (self.base..self.base + self.len).step_by(PAGE_BYTES) {
            if is_mapped(page) {
                continue;
            }
            match holes.last_mut() {
                Some(last) if last.base + last.len == page => last.len += PAGE_BYTES,
                _ => holes.push(Self { base: page, len: PAGE_BYTES }),
            }
        }
        holes
    }

    /// Maps private anonymous memory where nothing is mapped now.
    pub(crate) fn map_into_hole(self) -> io::Result<()> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: MAP_FIXED_NOREPLACE maps only where nothing is.
        let ret =
            unsafe { libc::mmap(self.void(), self.len, prot, flags | libc::MAP_FIXED_NOREPLACE, -1, 0) };
        check_map(ret).map(drop)
    }

    /// `mprotect(2)`.
    pub(crate) fn protect(self, prot: i32) -> io::Result<()> {
        // SAFETY: a span's protection is nobody else's concern (its invariant).
        check(unsafe { libc::mprotect(self.void(), self.len, prot) }).map(drop)
    }

    /// `madvise(2)`.
    pub(crate) fn advise(self, advice: i32) -> io::Result<()> {
        // SAFETY: a span's contents are nobody else's concern (its invariant).
        check(unsafe { libc::madvise(self.void(), self.len, advice) }).map(drop)
    }
}

/// `len` bytes without a part of a page.
fn pages(len: usize) -> usize {
    len / PAGE_BYTES * PAGE_BYTES
}

/// Word number `i` of the pattern of `seed`.
#[inline]
pub(crate) fn pattern(seed: u64, i: u64) -> u64 {
    (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ i).wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(31)
}

/// The pattern of `seed`, in memory of Rust's.
pub(crate) fn fill_pattern(bytes: &mut [u8], seed: u64) {
    for (i, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&pattern(seed, i as u64).to_ne_bytes());
    }
}

fn is_mapped(page: usize) -> bool {
    let mut resident = 0_u8;
    // SAFETY: mincore(2) looks at no memory; it writes one byte for one page.
    let ret = unsafe { libc::mincore(page as *mut libc::c_void, PAGE_BYTES, &raw mut resident) };
    ret == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ENOMEM)
}
