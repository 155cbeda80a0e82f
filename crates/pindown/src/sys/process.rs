//! [`Process`]: telling a forked child from its parent.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The process (more exactly, the address space) in which something was made. A forked child finds
/// that it is another; a vfork child or CLONE_VM thread group that shares memory finds that it is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u64);

/// A word that a forked child finds zeroed (MADV_WIPEONFORK, Linux 4.14).
static WORD: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
/// Inherited by children, so that a child's number differs from all its ancestors'.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Process {
    /// The present one. Without MADV_WIPEONFORK told by its pid.
    pub(crate) fn current() -> Self {
        let Some(word) = WORD.get_or_init(wiped_word) else {
            return Self(u64::from(std::process::id()));
        };
        match word.load(Ordering::Relaxed) {
            0 => {
                let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
                // Another thread may be first; its number is then everyone's.
                Self(
                    word.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed)
                        .map_or_else(|theirs| theirs, |_| fresh),
                )
            }
            number => Self(number),
        }
    }

    /// Whether this is still the process it was made in.
    pub(crate) fn is_current(self) -> bool {
        self == Self::current()
    }
}

/// A page that children find zeroed; never unmapped.
fn wiped_word() -> Option<&'static AtomicU64> {
    let (read_write, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
    let page = unsafe { libc::mmap(ptr::null_mut(), pindown_core::PAGE_SIZE, read_write, private, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the page was just mapped, private and anonymous, and nothing refers to it yet.
    if unsafe { libc::madvise(page, pindown_core::PAGE_SIZE, libc::MADV_WIPEONFORK) } != 0 {
        return None;
    }
    // SAFETY: mapped for reading and writing, zeroed, aligned to a page, never unmapped, and from here on
    // accessed as an atomic only. The wipe happens in a child before any of its threads runs.
    Some(unsafe { &*page.cast::<AtomicU64>() })
}
