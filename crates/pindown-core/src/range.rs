//! [`PageRange`]: the unit in which address space is registered and changes.

use std::fmt;

/// log2 of the page size in bytes. pindown works in 4 KiB pages; the builder
/// refuses a kernel whose base page is another.
pub const PAGE_SHIFT: u32 = 12;
/// The page size in bytes.
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;
/// The first address past what a process can map without asking for more
/// (x86-64 and arm64 with 47/48-bit user addresses; `Documentation/arch/x86/x86_64/mm.rst`).
pub const ADDRESS_SPACE_END: usize = 1 << 47;

/// A half-open, non-empty, page-aligned range of this process's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageRange {
    start: usize,
    end: usize,
}

/// Why `(addr, len)` is not a range of this address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RangeError {
    /// The length is zero: there is nothing to register.
    #[error("the length is zero: there is nothing to register")]
    ZeroLength,
    /// `addr + len` wraps around.
    #[error("{addr:#x} + {len_bytes} bytes wraps around the address space")]
    WrapAround {
        /// First address of the request.
        addr: usize,
        /// Its length in bytes.
        len_bytes: usize,
    },
    /// The range ends above the user address space.
    #[error("{addr:#x} + {len_bytes} bytes ends above the user address space ({ADDRESS_SPACE_END:#x})")]
    BeyondAddressSpace {
        /// First address of the request.
        addr: usize,
        /// Its length in bytes.
        len_bytes: usize,
    },
    /// A bound that must be page-aligned is not.
    #[error("{start:#x}..{end:#x} is not page-aligned or is empty")]
    Unaligned {
        /// First address.
        start: usize,
        /// First address past the end.
        end: usize,
    },
}

impl PageRange {
    /// The range `start..end`, both page-aligned and `start < end`.
    pub fn new(start: usize, end: usize) -> Result<Self, RangeError> {
        if start >= end || (start | end) & (PAGE_SIZE - 1) != 0 {
            return Err(RangeError::Unaligned { start, end });
        }
        if end > ADDRESS_SPACE_END {
            return Err(RangeError::BeyondAddressSpace { addr: start, len_bytes: end - start });
        }
        Ok(Self { start, end })
    }

    /// The smallest range of whole pages that holds `len_bytes` bytes at `addr`.
    pub fn covering(addr: usize, len_bytes: usize) -> Result<Self, RangeError> {
        if len_bytes == 0 {
            return Err(RangeError::ZeroLength);
        }
        let end = addr.checked_add(len_bytes).ok_or(RangeError::WrapAround { addr, len_bytes })?;
        if end > ADDRESS_SPACE_END {
            return Err(RangeError::BeyondAddressSpace { addr, len_bytes });
        }
        Ok(Self { start: addr & !(PAGE_SIZE - 1), end: (end + PAGE_SIZE - 1) & !(PAGE_SIZE - 1) })
    }

    /// Like [`covering`](Self::covering) for what a kernel reports: clipped to the
    /// user address space, `None` when nothing is left.
    pub fn clipped(addr: usize, len_bytes: usize) -> Option<Self> {
        let end = addr.saturating_add(len_bytes).min(ADDRESS_SPACE_END);
        Self::covering(addr, end.checked_sub(addr)?).ok()
    }

    /// Everything a process can map.
    pub fn everything() -> Self {
        Self { start: 0, end: ADDRESS_SPACE_END }
    }

    /// `pages` pages from page number `first_page`; clipped as [`clipped`](Self::clipped).
    pub fn from_pages(first_page: u64, pages: u64) -> Option<Self> {
        let start = usize::try_from(first_page).ok()?.checked_mul(PAGE_SIZE)?;
        let len = usize::try_from(pages).ok()?.saturating_mul(PAGE_SIZE);
        Self::clipped(start, len)
    }

    /// The first address.
    #[inline]
    pub fn start(self) -> usize {
        self.start
    }

    /// The first address past the end.
    #[inline]
    pub fn end(self) -> usize {
        self.end
    }

    /// Length in bytes; never zero.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len_bytes(self) -> usize {
        self.end - self.start
    }

    /// Length in pages; never zero.
    #[inline]
    pub fn pages(self) -> u64 {
        (self.len_bytes() >> PAGE_SHIFT) as u64
    }

    /// Number of the first page.
    #[inline]
    pub fn first_page(self) -> u64 {
        (self.start >> PAGE_SHIFT) as u64
    }

    /// Number of the first page past the end.
    #[inline]
    pub fn end_page(self) -> u64 {
        (self.end >> PAGE_SHIFT) as u64
    }

    /// Whether any page is in both.
    #[inline]
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Whether every page of `other` is in this range.
    #[inline]
    pub fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Whether they overlap or one ends where the other starts.
    #[inline]
    pub fn touches(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// The pages in both.
    pub fn intersection(self, other: Self) -> Option<Self> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(Self { start, end })
    }

    /// The smallest range that contains both.
    pub fn hull(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

impl fmt::Debug for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start, self.end)
    }
}

impl fmt::Display for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x} ({} KiB)", self.start, self.end, self.len_bytes() >> 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_requests_are_typed_errors() {
        assert_eq!(PageRange::covering(0x1000, 0), Err(RangeError::ZeroLength));
        assert!(matches!(PageRange::covering(usize::MAX, 2), Err(RangeError::WrapAround { .. })));
        assert!(matches!(PageRange::covering(usize::MAX - 1, 1), Err(RangeError::BeyondAddressSpace { .. })));
        assert!(matches!(
            PageRange::covering(ADDRESS_SPACE_END, 1),
            Err(RangeError::BeyondAddressSpace { .. })
        ));
        assert!(PageRange::covering(ADDRESS_SPACE_END - 1, 1).is_ok());
        assert!(matches!(PageRange::new(0x1000, 0x1000), Err(RangeError::Unaligned { .. })));
        assert!(matches!(PageRange::new(0x1001, 0x2000), Err(RangeError::Unaligned { .. })));
    }

    #[test]
    fn rounds_outwards() {
        let r = PageRange::covering(0x1fff, 2).unwrap();
        assert_eq!((r.start(), r.end(), r.pages()), (0x1000, 0x3000, 2));
        assert_eq!(PageRange::clipped(ADDRESS_SPACE_END - 10, 4096).unwrap().pages(), 1);
        assert_eq!(PageRange::clipped(ADDRESS_SPACE_END, 4096), None);
    }
}
