//! [`Lanes`]: a private memfd, seen through a mapping.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::slice;

/// `count` stretches of `lane_bytes` bytes of one memfd that nobody else has.
#[derive(Debug)]
pub(crate) struct Lanes {
    file: OwnedFd,
    map: NonNull<u8>,
    lane_bytes: usize,
    count: u32,
}

// SAFETY: `map` is memory that this value owns; `&Lanes` gives shared slices of it only.
unsafe impl Send for Lanes {}
// SAFETY: as above.
unsafe impl Sync for Lanes {}

impl Lanes {
    /// Makes the file with all its pages (Linux 3.17, memfd_create(2)).
    pub(crate) fn new(count: u32, lane_bytes: usize) -> io::Result<Self> {
        let bytes = lane_bytes.checked_mul(count as usize).filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let size = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: memfd_create reads a string constant and makes a new descriptor.
        let file = unsafe { libc::memfd_create(c"pindown-lanes".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just made and that nobody else owns.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        // SAFETY: ftruncate works on our descriptor and takes no pointer.
        if unsafe { libc::ftruncate(file.as_raw_fd(), size) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let map = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, file.as_raw_fd(), 0) };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { file, map, lane_bytes, count })
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn lane_bytes(&self) -> usize {
        self.lane_bytes
    }

    pub(crate) fn file(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Where in the file a lane begins.
    pub(crate) fn offset_bytes(&self, lane: u32) -> u64 {
        self.lane_bytes as u64 * u64::from(lane)
    }

    /// The bytes of a lane.
    ///
    /// # Safety
    ///
    /// No request that writes this lane is under way while the slice lives.
    pub(crate) unsafe fn lane(&self, lane: u32) -> &[u8] {
        assert!(lane < self.count, "lane {lane} of {}", self.count);
        // SAFETY: the lane lies in the mapping of `count * lane_bytes` bytes, which lives as long as
        // `self`; its file cannot shrink, since the descriptor is ours alone. Bytes of any value are valid.
        // We write only through `&mut self`, and the caller keeps the kernel from writing.
        unsafe {
            slice::from_raw_parts(self.map.as_ptr().add(self.lane_bytes * lane as usize), self.lane_bytes)
        }
    }

    /// The bytes of a lane, to be changed.
    ///
    /// # Safety
    ///
    /// No request that reads or writes this lane is under way while the slice lives.
    pub(crate) unsafe fn lane_mut(&mut self, lane: u32) -> &mut [u8] {
        assert!(lane < self.count, "lane {lane} of {}", self.count);
        // SAFETY: as in `lane`; `&mut self` excludes our other slices.
        unsafe {
            slice::from_raw_parts_mut(self.map.as_ptr().add(self.lane_bytes * lane as usize), self.lane_bytes)
        }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, of this length; no slice of it outlives `self`.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.lane_bytes * self.count as usize) };
    }
}
