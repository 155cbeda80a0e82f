//! [`prefetch`]: pages made ready before they are needed.

use std::io;

use pindown_core::{Access, PAGE_SIZE, PageRange, Provider, Registration};

use crate::cache::Cache;
use crate::sys::populate::{is_supported, populate, readable_page_bytes};

/// Populated between two looks at how far it got.
const STEP_BYTES: usize = 16 << 20;

/// How far a prefetch got.
#[derive(Debug)]
pub struct Prefetched {
    /// What was asked for, in whole pages.
    pub range: PageRange,
    /// Bytes from its start that are ready.
    pub ready_bytes: usize,
    /// Why it went no further.
    pub stop: Option<Stop>,
    /// What the device answered, where it faults by itself (on-demand paging) and the range is
    /// registered; an error only means that its first transfer waits for the faults.
    pub device: Option<io::Result<()>>,
}

/// Why pages could not be made ready.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Stop {
    /// Nothing is mapped there (ENOMEM).
    #[error("nothing is mapped at {at:#x}")]
    Hole {
        /// The first page without a mapping.
        at: usize,
    },
    /// The mapping forbids it: PROT_NONE, or read-only for writing (EFAULT, EPERM, EINVAL).
    #[error("the mapping at {at:#x} does not allow this access")]
    Forbidden {
        /// The first page that does.
        at: usize,
    },
    /// Beyond the end of the mapped file: touching it would raise SIGBUS (EFAULT).
    #[error("{at:#x} lies beyond the end of the mapped file")]
    BeyondFile {
        /// The first page that does.
        at: usize,
    },
    /// The pool of huge pages is empty (or the hugetlbfs file ends): touching it would raise SIGBUS (EFAULT).
    #[error("no huge page is left for {at:#x} (raise vm.nr_hugepages), or the file ends before it")]
    NoHugePage {
        /// The first page without.
        at: usize,
    },
    /// A poisoned page (EHWPOISON).
    #[error("a hardware-poisoned page at {at:#x}")]
    Poisoned {
        /// Where.
        at: usize,
    },
    /// Linux before 5.14.
    #[error("this kernel cannot populate pages (MADV_POPULATE_*, Linux 5.14)")]
    Unsupported,
    /// Anything else.
    #[error("populating at {at:#x} failed")]
    Io {
        /// Where.
        at: usize,
        /// The call's error.
        #[source]
        source: io::Error,
    },
}

/// Makes the pages of `range` ready for `access` on this thread: faults them in, and for writing breaks
/// copy-on-write and allocates (`madvise(2)` MADV_POPULATE_READ and MADV_POPULATE_WRITE). Never raises
/// SIGBUS or SIGSEGV. Changes no bytes.
pub fn prefetch(range: PageRange, access: Access) -> Prefetched {
    let mut at = range.start();
    while at < range.end() {
        let len = STEP_BYTES.min(range.end() - at);
        if let Err(error) = populate(at, len, access.is_write()) {
            let (ready, error) = first_bad_page(at, len, access, error);
            return Prefetched {
                range,
                ready_bytes: ready - range.start(),
                stop: Some(stop(ready, error)),
                device: None,
            };
        }
        at += len;
    }
    Prefetched { range, ready_bytes: range.len_bytes(), stop: None, device: None }
}

/// Has a device that faults by itself do so now. `None`: this one does not.
pub(super) fn on_device<P: Provider>(
    cache: &Cache<P>,
    held: &Registration<P>,
    range: PageRange,
    access: Access,
) -> Option<io::Result<()>> {
    let provider = cache.provider();
    provider.caps().coherent.then(|| provider.prefetch(held.key(), range, access))
}

/// The first page of a step that cannot be populated, by halving: what comes before it can.
fn first_bad_page(start: usize, len: usize, access: Access, mut error: io::Error) -> (usize, io::Error) {
    let (mut good, mut bad) = (0, len / PAGE_SIZE);
    while good < bad - 1 {
        let middle = good.midpoint(bad);
        match populate(start + good * PAGE_SIZE, (middle - good) * PAGE_SIZE, access.is_write()) {
            Ok(()) => good = middle,
            Err(e) => {
                bad = middle;
                error = e;
            }
        }
    }
    let at = start + good * PAGE_SIZE;
    // The page itself decides, not the step it was found in.
    match populate(at, PAGE_SIZE, access.is_write()) {
        Ok(()) => (at + PAGE_SIZE, error),
        Err(e) => (at, e),
    }
}

fn stop(at: usize, source: io::Error) -> Stop {
    match source.raw_os_error() {
        Some(libc::ENOMEM) => Stop::Hole { at },
        Some(libc::EHWPOISON) => Stop::Poisoned { at },
        Some(libc::EINVAL) if !is_supported() => Stop::Unsupported,
        Some(libc::EFAULT) => match readable_page_bytes(at) {
            Some(bytes) if bytes > PAGE_SIZE as u64 => Stop::NoHugePage { at },
            Some(_) => Stop::BeyondFile { at },
            None => Stop::Forbidden { at },
        },
        Some(libc::EPERM | libc::EINVAL | libc::EACCES) => Stop::Forbidden { at },
        _ => Stop::Io { at, source },
    }
}
