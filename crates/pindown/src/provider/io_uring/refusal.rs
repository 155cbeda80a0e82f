//! What the kernel's refusals mean.

use std::io;

use pindown_core::{Limit, PageRange, RegisterError};

use super::mappings::{Mappings, Obstacle};
use crate::sys::limits;
use crate::sys::uring::MAX_BUFFER_BYTES;

/// Why the kernel answered EFAULT.
fn why(obstacle: Obstacle) -> &'static str {
    match obstacle {
        Obstacle::Hole => "part of it is not mapped",
        Obstacle::NotWritable => {
            "part of it is not writable, and io_uring pins every page for writing, even to send from it: \
             send such memory without a fixed buffer, or copy it"
        }
        Obstacle::SharedFile => {
            "part of it is a shared mapping of a file whose filesystem writes pages back, which io_uring \
             does not pin: map it private, keep it in a memfd or on tmpfs, or send it without a fixed buffer"
        }
        Obstacle::Special => {
            "part of it is device memory, memfd_secret or another mapping without ordinary pages"
        }
        Obstacle::Unknown => {
            "io_uring pins every page for writing, even to send from it, so all of it must be mapped and \
             writable; it refuses shared mappings of files on a disk, device memory, memfd_secret memory, guard \
             pages, pages beyond the end of their file and pages without memory behind them"
        }
    }
}

/// The error of an update that registered nothing of `range`.
pub(super) fn explain(range: PageRange, source: io::Error, mappings: &Mappings) -> RegisterError {
    match source.raw_os_error() {
        Some(libc::EFAULT | libc::EOPNOTSUPP) => {
            RegisterError::Unsupported { range, why: why(mappings.obstacle(range)), source }
        }
        Some(libc::ENOMEM) => out_of_memory(range, source),
        Some(libc::EAGAIN | libc::EINTR | libc::EBUSY) => RegisterError::Busy { range, source },
        Some(libc::EEXIST) => RegisterError::WrongThread,
        Some(libc::EBADF | libc::ENXIO | libc::EBADFD) => RegisterError::DeviceGone { source },
        _ => RegisterError::Io { range, source },
    }
}

/// ENOMEM has two meanings; only one of them can hold where no limit binds.
fn out_of_memory(range: PageRange, source: io::Error) -> RegisterError {
    match limits::binding_memlock_bytes() {
        Some(bytes) => RegisterError::Limit {
            range,
            limit: Limit::Memlock,
            value: Some(bytes),
            remedy: "raise RLIMIT_MEMLOCK (`ulimit -l`, LimitMEMLOCK= of the service, or limits.conf), give \
                the process CAP_IPC_LOCK, or lower max_bytes; the limit is for all rings of the user \
                (with the rings themselves on newer kernels), and a huge page counts whole",
            source,
        },
        None => RegisterError::Limit {
            range,
            limit: Limit::Memory,
            value: None,
            remedy: "the kernel found no memory to pin or to describe the buffer: free some, raise the \
                cgroup's memory.max, or lower max_bytes",
            source,
        },
    }
}

/// No slot is free.
pub(super) fn no_slot(range: PageRange, slots: u32) -> RegisterError {
    RegisterError::Limit {
        range,
        limit: Limit::Slots,
        value: Some(u64::from(slots)),
        remedy: "build the provider with more slots (a ring has at most 16384), or lower max_regions",
        source: io::Error::from_raw_os_error(libc::ENOSPC),
    }
}

/// Longer than a fixed buffer can be.
pub(super) fn too_long(range: PageRange) -> RegisterError {
    RegisterError::Limit {
        range,
        limit: Limit::RegionBytes,
        value: Some(MAX_BUFFER_BYTES),
        remedy: "a fixed buffer has at most 1 GiB: acquire longer memory in parts",
        source: io::Error::from_raw_os_error(libc::EFBIG),
    }
}

/// Called in a forked child, whose parent has the same ring.
pub(super) fn forked(range: PageRange) -> RegisterError {
    RegisterError::Unsupported {
        range,
        why: "the ring belongs to the parent process, whose buffers an update from here would replace: \
            after fork, open a ring and build a cache of its own in the child",
        source: io::ErrorKind::Unsupported.into(),
    }
}

/// The kernel stopped before this range without an error of its own.
pub(super) fn stopped_short(range: PageRange) -> RegisterError {
    RegisterError::Busy { range, source: io::ErrorKind::Interrupted.into() }
}
