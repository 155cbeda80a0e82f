//! [`Helpers`]: rings on which long ranges are pinned before they are handed to the application's.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pindown_core::PageRange;

use crate::sys::uring;

/// Ranges at least this long go through a helper. Shorter ones are not worth the hand-over, which copies
/// the table of the application's ring (2 µs for 1024 slots), and would be charged a huge page more at
/// either end.
const LONG_BYTES: usize = 64 << 20;
/// Idle helpers that are kept; each is a descriptor and two pages of the kernel's.
const KEPT: usize = 8;

/// A pool of rings with a table of one slot each.
///
/// The kernel holds a ring's lock while it pins, so that the application cannot submit meanwhile and two
/// registrations on one ring take turns; and it compares each huge page with the whole table. On a helper
/// none of that matters. The buffer then moves with `IORING_REGISTER_CLONE_BUFFERS` (a part of a table:
/// Linux 6.13), which pins and accounts nothing again.
#[derive(Debug, Default)]
pub(super) struct Helpers {
    idle: Mutex<Vec<OwnedFd>>,
    /// The kernel does not clone, or not into this ring.
    useless: AtomicBool,
}

impl Helpers {
    /// Registers `range` in slot `slot` of `ring` by way of a helper. `None`: not possible or not worth it, and
    /// nothing was changed.
    ///
    /// # Safety
    ///
    /// As [`uring::update`] for the one slot.
    pub(super) unsafe fn register(&self, ring: BorrowedFd<'_>, slot: u16, range: PageRange) -> Option<()> {
        if range.len_bytes() < LONG_BYTES || self.useless.load(Ordering::Relaxed) {
            return None;
        }
        let helper = self.take().ok()?;
        // SAFETY: passed on to the caller; the helper is ours alone and its slot empty.
        let pinned = unsafe { uring::update(helper.as_fd(), 0, &[range], None) };
        if !matches!(pinned, Ok(1)) {
            self.put(helper);
            return None; // the caller's own attempt says why
        }
        // SAFETY: the caller vouches for slot and range.
        let cloned = unsafe { uring::clone_buffers(ring, u32::from(slot), helper.as_fd(), 0, 1) };
        // SAFETY: the slot is ours.
        if unsafe { uring::clear(helper.as_fd(), 0) }.is_ok() {
            self.put(helper);
        }
        self.judge(&cloned);
        cloned.ok()
    }

    /// After EINVAL (kernel too old, or the ring was made by another user) there is no point in trying again.
    fn judge(&self, cloned: &io::Result<()>) {
        if cloned.as_ref().is_err_and(|e| matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EACCES))) {
            self.useless.store(true, Ordering::Relaxed);
        }
    }

    fn take(&self) -> io::Result<OwnedFd> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(new_helper, Ok)
    }

    fn put(&self, helper: OwnedFd) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push(helper);
        }
    }
}

fn new_helper() -> io::Result<OwnedFd> {
    let ring = uring::setup(1)?;
    uring::register_sparse(ring.as_fd(), 1)?;
    Ok(ring)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::limits;

    #[test]
    fn a_long_range_goes_through_a_helper_that_is_kept() {
        if limits::binding_memlock_bytes().is_some_and(|bytes| bytes < 2 * LONG_BYTES as u64) {
            return println!("skipped: RLIMIT_MEMLOCK is too low");
        }
        let memory = vec![1u8; LONG_BYTES + 8192];
        let range = |len| PageRange::covering(memory.as_ptr().addr(), len).unwrap();
        let (ring, helpers) = (uring::setup(4).unwrap(), Helpers::default());
        uring::register_sparse(ring.as_fd(), 4).unwrap();
        // SAFETY: no request is made.
        let by_helper = |slot, range| unsafe { helpers.register(ring.as_fd(), slot, range) };
        assert_eq!(by_helper(0, range(LONG_BYTES / 2)), None, "too short to be worth it");
        if by_helper(1, range(LONG_BYTES)).is_none() {
            assert!(helpers.useless.load(Ordering::Relaxed));
            return println!("skipped: the kernel does not clone parts of tables (Linux 6.13)");
        }
        assert_eq!(by_helper(2, range(LONG_BYTES)), Some(()));
        assert_eq!(helpers.idle.lock().unwrap().len(), 1);
        let hole = PageRange::new(4096, 8192 + LONG_BYTES).unwrap();
        assert_eq!(by_helper(3, hole), None);
        assert_eq!(helpers.idle.lock().unwrap().len(), 1);
    }
}
