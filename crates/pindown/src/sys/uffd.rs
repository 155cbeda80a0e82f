//! `userfaultfd(2)`: opening one, arming ranges, reading events.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use linux_raw_sys::general::{self as raw, uffd_msg, uffdio_api, uffdio_range, uffdio_register};
use linux_raw_sys::ioctl;
use pindown_core::PageRange;

/// Events about unmapping, moving and discarding; not about fork, which needs CAP_SYS_PTRACE.
const EVENTS: u32 =
    raw::UFFD_FEATURE_EVENT_UNMAP | raw::UFFD_FEATURE_EVENT_REMAP | raw::UFFD_FEATURE_EVENT_REMOVE;
/// WP_ASYNC (Linux 6.7) lets every kind of mapping be armed without a fault ever being raised;
/// WP_UNPOPULATED keeps the kernel from populating page tables for it.
const MODE: u32 =
    raw::UFFD_FEATURE_WP_ASYNC | raw::UFFD_FEATURE_WP_UNPOPULATED | raw::UFFD_FEATURE_WP_HUGETLBFS_SHMEM;

/// `_IO(0xAA, 0x00)` on `/dev/userfaultfd` (Linux 6.1).
const USERFAULTFD_IOC_NEW: libc::c_ulong = 0xAA00;

/// How a userfaultfd was or was not to be had.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// Neither the system call nor `/dev/userfaultfd`; the call's own error.
    Refused(io::Error),
    /// The kernel lacks these features (Linux 6.7 has all).
    Features(io::Error),
}

/// One message of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// `start, len_bytes` was unmapped.
    Unmap(usize, usize),
    /// Pages of `start, len_bytes` are about to be given back.
    Remove(usize, usize),
    /// `from, to, len_bytes` moved.
    Remap(usize, usize, usize),
    /// A kind that was not asked for.
    Unknown(u8),
}

/// A non-blocking userfaultfd with the handshake done.
pub(crate) fn open() -> Result<OwnedFd, OpenError> {
    let fd = by_syscall().or_else(|e| by_device().map_err(|_| e)).map_err(OpenError::Refused)?;
    let features = u64::from(EVENTS | MODE);
    let mut api = uffdio_api { api: u64::from(raw::UFFD_API), features, ioctls: 0 };
    // SAFETY: `api` is a live uffdio_api, which the kernel reads and fills.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), ioctl::UFFDIO_API as _, &mut api) };
    if rc < 0 { Err(OpenError::Features(io::Error::last_os_error())) } else { Ok(fd) }
}

fn flags() -> libc::c_int {
    libc::O_CLOEXEC | libc::O_NONBLOCK | raw::UFFD_USER_MODE_ONLY as libc::c_int
}

/// The system call; unprivileged because only faults of user mode are handled (Linux 5.11).
pub(crate) fn by_syscall() -> io::Result<OwnedFd> {
    // SAFETY: the call takes flags alone.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags()) };
    // SAFETY: a non-negative result is a new descriptor that nothing else owns.
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }) }
}

/// `/dev/userfaultfd`, for where seccomp refuses the call and the administrator allows the device.
pub(crate) fn by_device() -> io::Result<OwnedFd> {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd")?;
    // SAFETY: the ioctl takes flags alone.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW as _, flags()) };
    // SAFETY: a non-negative result is a new descriptor that nothing else owns.
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
}

fn raw_range(range: PageRange) -> uffdio_range {
    uffdio_range { start: range.start() as u64, len: range.len_bytes() as u64 }
}

/// Arms every mapping in `range` for events (write-protect mode, nothing is ever protected).
/// EBUSY: another userfaultfd has it. EINVAL: nothing is mapped, or it cannot be armed.
pub(crate) fn arm(uffd: RawFd, range: PageRange) -> io::Result<()> {
    let mode = u64::from(raw::UFFDIO_REGISTER_MODE_WP);
    let mut r = uffdio_register { range: raw_range(range), mode, ioctls: 0 };
    // SAFETY: `r` is a live uffdio_register. Arming changes no content and no protection.
    let rc = unsafe { libc::ioctl(uffd, ioctl::UFFDIO_REGISTER as _, &mut r) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Disarms every mapping in `range`.
pub(crate) fn disarm(uffd: RawFd, range: PageRange) -> io::Result<()> {
    let mut r = raw_range(range);
    // SAFETY: `r` is a live uffdio_range. Disarming changes no content and no protection.
    let rc = unsafe { libc::ioctl(uffd, ioctl::UFFDIO_UNREGISTER as _, &mut r) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether some change of armed memory has begun whose event has not been read.
///
/// The kernel counts them in the context (`mmap_changing`): up under the mmap lock before the
/// change, down after the event was read. Every ioctl that would fill memory first looks at the
/// count and says EAGAIN; asking for a malformed write-protection therefore answers EAGAIN or
/// EINVAL and does nothing (`fs/userfaultfd.c`, `userfaultfd_writeprotect`).
pub(crate) fn is_changing(uffd: RawFd) -> io::Result<bool> {
    let nothing = raw::uffdio_writeprotect { range: uffdio_range { start: 1, len: 0 }, mode: 0 };
    // SAFETY: the range is invalid (unaligned, empty), so that the kernel only reads the struct.
    let rc = unsafe { libc::ioctl(uffd, ioctl::UFFDIO_WRITEPROTECT as _, &nothing) };
    let error = io::Error::last_os_error();
    match (rc, error.raw_os_error()) {
        (-1, Some(libc::EAGAIN)) => Ok(true),
        (-1, Some(libc::EINVAL)) => Ok(false),
        _ => Err(error),
    }
}

/// Room for as many messages as one read takes.
pub(crate) struct Buffer([uffd_msg; 32]);

impl Buffer {
    pub(crate) fn new() -> Self {
        // SAFETY: the message is plain integers, for which zeroes are valid.
        Self(unsafe { std::mem::zeroed() })
    }

    /// Reads what is there without blocking; 0 when there is nothing, negative errno on failure.
    /// Neither allocates nor panics.
    pub(crate) fn read(&mut self, uffd: RawFd) -> isize {
        // SAFETY: the buffer is writable for as many bytes as it is long.
        let n = unsafe { libc::read(uffd, self.0.as_mut_ptr().cast(), size_of_val(&self.0)) };
        if n >= 0 {
            return n / size_of::<uffd_msg>() as isize;
        }
        // SAFETY: errno of this thread.
        match unsafe { *libc::__errno_location() } {
            libc::EAGAIN | libc::EINTR => 0,
            error => -(error as isize),
        }
    }

    /// The first `count` messages of the last read.
    pub(crate) fn events(&self, count: usize) -> impl Iterator<Item = Event> + '_ {
        self.0.iter().take(count).map(event)
    }
}

fn event(message: &uffd_msg) -> Event {
    let arg = message.arg;
    match u32::from(message.event) {
        raw::UFFD_EVENT_UNMAP | raw::UFFD_EVENT_REMOVE => {
            // SAFETY: for these two events the kernel filled `remove`.
            let r = unsafe { arg.remove };
            let (start, len) = (r.start as usize, r.end.saturating_sub(r.start) as usize);
            let removed = u32::from(message.event) == raw::UFFD_EVENT_REMOVE;
            if removed { Event::Remove(start, len) } else { Event::Unmap(start, len) }
        }
        raw::UFFD_EVENT_REMAP => {
            // SAFETY: for this event the kernel filled `remap`.
            let r = unsafe { arg.remap };
            Event::Remap(r.from as usize, r.to as usize, r.len as usize)
        }
        _ => Event::Unknown(message.event),
    }
}
