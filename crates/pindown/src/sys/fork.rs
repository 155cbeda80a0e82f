//! Descriptors that a forked child must not keep.
//!
//! A child inherits a userfaultfd, and as long as it is open in the child, the parent's munmap of
//! an armed range waits for a reader, also after the parent closed its own and stopped reading. So
//! each is closed in the child by a `pthread_atfork(3)` handler, before `fork` returns there. The
//! handler may only do what is async-signal-safe: it walks a fixed table of atomics and calls
//! `close(2)`.
//!
//! Children that bypass libc (`clone(2)`, `vfork(2)`) keep the descriptors until they exec
//! (close-on-exec) or exit. The monitor's stop therefore disarms everything before it closes.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

const FREE: i32 = -1;
const SLOTS: usize = 128;
static OPEN: [AtomicI32; SLOTS] = [const { AtomicI32::new(FREE) }; SLOTS];
static INSTALL: Once = Once::new();

/// A descriptor that is closed in forked children.
#[derive(Debug)]
pub(crate) struct PrivateFd {
    slot: &'static AtomicI32,
}

impl PrivateFd {
    /// Takes `fd` over. `None` (and `fd` closed): too many are open, or no handler can be installed.
    pub(crate) fn new(fd: OwnedFd) -> Option<Self> {
        install_handler().then_some(())?;
        let raw = fd.into_raw_fd();
        let free = OPEN
            .iter()
            .find(|slot| slot.compare_exchange(FREE, raw, Ordering::AcqRel, Ordering::Relaxed).is_ok());
        if free.is_none() {
            // SAFETY: the raw descriptor was taken from its owner above and is in no slot.
            drop(unsafe { OwnedFd::from_raw_fd(raw) });
        }
        Some(Self { slot: free? })
    }

    /// The descriptor; -1 in a forked child.
    pub(crate) fn raw(&self) -> RawFd {
        self.slot.load(Ordering::Acquire)
    }

    /// Where to find the number without keeping this alive.
    pub(crate) fn descriptor(&self) -> Descriptor {
        Descriptor(self.slot)
    }
}

/// The place of a [`PrivateFd`]'s number, which outlives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor(&'static AtomicI32);

impl Descriptor {
    /// The descriptor, -1 when it is closed; another's once the place was given on.
    pub(crate) fn raw(self) -> RawFd {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for PrivateFd {
    fn drop(&mut self) {
        let fd = self.slot.swap(FREE, Ordering::AcqRel);
        if fd != FREE {
            // SAFETY: the swap made this the only owner; the slot was filled by `new`.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
}

/// Whether `fd` is one of these.
pub(crate) fn is_private(fd: RawFd) -> bool {
    fd != FREE && OPEN.iter().any(|slot| slot.load(Ordering::Acquire) == fd)
}

fn install_handler() -> bool {
    static INSTALLED: AtomicI32 = AtomicI32::new(-1);
    INSTALL.call_once(|| {
        // SAFETY: the handler is a plain function that lives as long as the program.
        let rc = unsafe { libc::pthread_atfork(None, None, Some(close_all)) };
        INSTALLED.store(rc, Ordering::Release);
    });
    INSTALLED.load(Ordering::Acquire) == 0
}

/// Runs in the child, whose other threads are gone: atomics and close(2) only.
extern "C" fn close_all() {
    for slot in &OPEN {
        let fd = slot.swap(FREE, Ordering::AcqRel);
        if fd != FREE {
            // SAFETY: the slot owned it. In the child no other thread can be using it.
            unsafe { libc::close(fd) };
        }
    }
}
