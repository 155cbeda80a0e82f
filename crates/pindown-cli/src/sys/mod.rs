//! Every system call and raw memory access of the command line.
//!
//! `coherence` has to do to an address space what programs do to theirs: unmap, move, truncate.
//! What it does that to is a [`Span`], memory set aside for the experiment; see there for why the
//! functions on it are safe to call.

mod file;
mod heap;
mod map;
mod process;
mod ring;
mod shm;
mod signal;
mod soak;
mod span;
mod terminal;
mod threads;
mod uffd;

pub(crate) use file::*;
pub(crate) use heap::*;
pub(crate) use map::*;
pub(crate) use process::*;
pub(crate) use ring::*;
pub(crate) use shm::*;
pub(crate) use signal::*;
pub(crate) use soak::*;
pub(crate) use span::*;
pub(crate) use terminal::*;
pub(crate) use threads::*;
pub(crate) use uffd::*;

use std::io;

/// The base page, in bytes.
pub(crate) const PAGE_BYTES: usize = 4096;
/// The huge page that THP and hugetlb use on x86-64 and arm64, in bytes.
pub(crate) const HUGE_BYTES: usize = 2 << 20;

/// A C return value as a result.
pub(crate) fn check(ret: impl Into<i64>) -> io::Result<i64> {
    match ret.into() {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

/// `mmap`'s and `mremap`'s return value as a result.
pub(crate) fn check_map(ret: *mut libc::c_void) -> io::Result<usize> {
    if ret == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(ret as usize) }
}

/// The effective user id.
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: geteuid(2) takes nothing and always succeeds.
    unsafe { libc::geteuid() }
}
