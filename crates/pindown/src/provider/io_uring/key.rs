//! [`UringKey`] and [`UringMr`].

use std::fmt;

use pindown_core::PageRange;

/// What goes into a `READ_FIXED`, `WRITE_FIXED` or `SEND_ZC` request: the index of a fixed buffer, and the
/// addresses that it stands for.
///
/// A plain value. It means the registered pages for as long as the
/// [`Registration`](pindown_core::Registration) it came from is held, and nothing afterwards. It says what
/// the kernel checks: a request whose bytes are not all inside [`range`](Self::range) fails with EFAULT.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UringKey {
    buf_index: u16,
    range: PageRange,
}

impl UringKey {
    pub(super) fn new(buf_index: u16, range: PageRange) -> Self {
        Self { buf_index, range }
    }

    /// The SQE's `buf_index`.
    #[inline]
    pub fn buf_index(self) -> u16 {
        self.buf_index
    }

    /// The registered addresses. A request names the memory by its address, as without a fixed buffer.
    #[inline]
    pub fn range(self) -> PageRange {
        self.range
    }

    /// Whether `len_bytes` bytes at `addr` lie inside the buffer, which the kernel will demand. An empty
    /// request lies inside wherever its address does.
    #[inline]
    pub fn covers(self, addr: *const u8, len_bytes: usize) -> bool {
        let start = addr.addr();
        let end = start.checked_add(len_bytes);
        start >= self.range.start() && end.is_some_and(|end| end <= self.range.end())
    }
}

impl fmt::Debug for UringKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "buf_index {} ({:?})", self.buf_index, self.range)
    }
}

/// One fixed buffer. Dropping it leaves the buffer registered until the ring is closed.
#[derive(Debug)]
#[must_use = "dropped, it stays registered until the ring is closed"]
pub struct UringMr {
    pub(super) key: UringKey,
    /// Some pages are of hugetlbfs: they go back to their pool only when unpinned.
    pub(super) hugetlb: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_what_the_kernel_would_accept() {
        let key = UringKey::new(3, PageRange::new(0x1000, 0x3000).unwrap());
        let covers = |addr: usize, len| key.covers(std::ptr::without_provenance(addr), len);
        assert!(covers(0x1000, 0x2000) && covers(0x2fff, 1) && covers(0x3000, 0));
        assert!(!covers(0xfff, 2) && !covers(0x1000, 0x2001) && !covers(0x2000, usize::MAX));
    }
}
