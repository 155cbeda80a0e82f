//! System V shared memory.

use std::io;

use super::{Span, check};

/// A segment that is marked for removal at once: it lives as long as it is attached.
#[derive(Debug)]
pub(crate) struct Segment {
    id: i32,
}

impl Segment {
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        // SAFETY: integers alone.
        let id = check(unsafe { libc::shmget(libc::IPC_PRIVATE, len, 0o600 | libc::IPC_CREAT) })?;
        Ok(Self { id: id as i32 })
    }

    /// Attaches it at `span`, over whatever is there.
    pub(crate) fn attach_over(&self, span: Span) -> io::Result<()> {
        // SAFETY: SHM_REMAP replaces the span alone, which nothing else uses; the segment is as long.
        let ret = unsafe { libc::shmat(self.id, span.void(), libc::SHM_REMAP) };
        check(ret as i64).map(drop)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: integers and no buffer. Attached segments stay until they are detached.
        unsafe { libc::shmctl(self.id, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

/// `shmdt(2)`.
pub(crate) fn detach(span: Span) -> io::Result<()> {
    // SAFETY: the span is an attached segment, used by nothing else.
    check(unsafe { libc::shmdt(span.void()) }).map(drop)
}
