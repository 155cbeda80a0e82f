//! What the soak does with registered memory.

use std::io;

use pindown::provider::io_uring::{Mover, UringKey, UringProvider};
use pindown::{Access, AcquireError, Cache, Registration};

use super::{Span, Via, check, reap, unmap};

/// Acquires memory of a soak's cell, or what was it a moment ago.
pub(crate) fn acquire_cell(
    cache: &Cache<UringProvider>,
    addr: usize,
    len_bytes: usize,
    access: Access,
) -> Result<Registration<UringProvider>, AcquireError> {
    // SAFETY: transfers go only to and from spans, whose bytes no Rust reference points to, by
    // whoever has the cell's lock; the device does nothing on its own.
    unsafe { cache.acquire(std::ptr::without_provenance(addr), len_bytes, access) }
}

/// READ_FIXED of `data` into `span`.
pub(crate) fn receive(mover: &mut Mover, key: UringKey, span: Span, data: &[u8]) -> io::Result<()> {
    assert!(data.len() <= span.len_bytes());
    // SAFETY: nothing refers to a span's bytes; the caller holds the registration of the key.
    unsafe { mover.read_fixed(key, span.ptr(), data) }
}

/// Forks; the child runs `check`, unmaps or dirties `span`, and exits with 0 if all is well.
pub(crate) fn fork_and_check(span: Span, unmaps: bool, look: impl FnOnce() -> bool) -> io::Result<()> {
    // SAFETY: the child touches the span (its own copy), and calls `look`, which takes no lock.
    let pid = check(unsafe { libc::fork() })?;
    if pid == 0 {
        let mut good = look();
        if unmaps {
            good &= unmap(span, Via::Raw).is_ok();
        } else {
            span.part(0, super::PAGE_BYTES).write(&[7; 64]);
        }
        // SAFETY: ends the child without running exit handlers of the parent's.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    reap(pid as i32)
}
