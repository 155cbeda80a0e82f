//! [`Bounce`]: registered memory of our own, in lanes, as the other end of a loopback transfer.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use pindown_core::{Access, PAGE_SIZE, PageRange};

use super::memory::{Mr, Paging, Pd};

/// Lanes of page-aligned memory that the device reads and writes. A lane whose transfer is under
/// way is marked busy, and no reference to its bytes is given out until it is not.
#[derive(Debug)]
pub(crate) struct Bounce {
    base: NonNull<u8>,
    range: PageRange,
    lane_bytes: usize,
    busy: Box<[bool]>,
    mr: Option<Mr>,
    pd: Arc<Pd>,
}

// SAFETY: the memory is owned; it is reached through `&self` for reading and `&mut self` for
// writing, and by the device only in lanes that are busy.
unsafe impl Send for Bounce {}
// SAFETY: as above.
unsafe impl Sync for Bounce {}

impl Bounce {
    pub(crate) fn new(pd: &Arc<Pd>, lanes: u32, lane_bytes: usize) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let lane_bytes = lane_bytes.max(1).next_multiple_of(PAGE_SIZE);
        let len = lane_bytes.checked_mul(lanes.max(1) as usize).ok_or_else(invalid)?;
        let (rw, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, rw, flags, -1, 0) };
        let base = NonNull::new(at.cast::<u8>()).filter(|_| at != libc::MAP_FAILED);
        let base = base.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: advice on our own mapping, to have fewer faults; refused where there are no huge pages.
        unsafe { libc::madvise(at, len, libc::MADV_HUGEPAGE) };
        let range = PageRange::covering(at as usize, len).map_err(|_| invalid())?;
        let busy = vec![false; lanes.max(1) as usize].into();
        let mut new = Self { base, range, lane_bytes, busy, mr: None, pd: pd.clone() };
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        // SAFETY: the device writes to busy lanes alone, which nobody refers to.
        new.mr = Some(unsafe { pd.register(Some(range), access, Paging::Pinned, false)? });
        Ok(new)
    }

    pub(crate) fn lanes(&self) -> u32 {
        self.busy.len() as u32
    }

    pub(crate) fn lane_bytes(&self) -> usize {
        self.lane_bytes
    }

    pub(crate) fn lane_addr(&self, lane: u32) -> usize {
        assert!((lane as usize) < self.busy.len(), "no lane {lane}");
        self.range.start() + lane as usize * self.lane_bytes
    }

    /// The local and remote key.
    pub(crate) fn keys(&self) -> (u32, u32) {
        self.mr.as_ref().map_or((0, 0), |mr| (mr.lkey(), mr.rkey()))
    }

    /// # Panics
    ///
    /// If a transfer is under way in it already.
    pub(crate) fn set_busy(&mut self, lane: u32) {
        assert!(!std::mem::replace(&mut self.busy[lane as usize], true), "lane {lane} is busy");
    }

    pub(crate) fn set_idle(&mut self, lane: u32) {
        self.busy[lane as usize] = false;
    }

    /// The bytes of an idle lane.
    pub(crate) fn lane(&self, lane: u32) -> &[u8] {
        assert!(!self.busy[lane as usize], "lane {lane} is busy");
        let offset = lane as usize * self.lane_bytes;
        // SAFETY: inside the mapping; not busy, so the device does not write it, and `&mut self`
        // is needed to make it busy.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), self.lane_bytes) }
    }

    /// The bytes of an idle lane, to fill.
    pub(crate) fn lane_mut(&mut self, lane: u32) -> &mut [u8] {
        assert!(!self.busy[lane as usize], "lane {lane} is busy");
        let offset = lane as usize * self.lane_bytes;
        // SAFETY: as in `lane`, and this borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(offset), self.lane_bytes) }
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        let gone = self.mr.take().is_none_or(|mr| self.pd.deregister(mr).is_ok());
        if gone {
            // SAFETY: mapped by `new`; the device has let go.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.range.len_bytes()) };
        }
    }
}
