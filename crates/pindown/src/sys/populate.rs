//! `madvise(2)` MADV_POPULATE_READ / MADV_POPULATE_WRITE (Linux 5.14).

use std::io;

use super::procmap::ProcMap;

/// Faults the pages in. Changes no bytes; an unmapped or forbidden page is an error, not a signal.
pub(crate) fn populate(addr: usize, len_bytes: usize, write: bool) -> io::Result<()> {
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    loop {
        let at = std::ptr::without_provenance_mut(addr);
        // SAFETY: populating is what an access of the same kind would do, less the signal: it changes
        // no byte and no mapping.
        if unsafe { libc::madvise(at, len_bytes, advice) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            e if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => continue,
            e => return Err(e),
        }
    }
}

/// Whether the kernel knows the advice: an empty range is good advice.
pub(crate) fn is_supported() -> bool {
    populate(super::page_size(), 0, false).is_ok()
}

/// Size of the pages of the mapping at `addr`, if it can be read at all.
pub(crate) fn readable_page_bytes(addr: usize) -> Option<u64> {
    let vma = ProcMap::open().ok()?.find(addr, false).ok()??;
    vma.perms.readable.then_some(vma.page_size_bytes)
}
