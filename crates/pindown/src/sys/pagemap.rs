//! `PAGEMAP_SCAN` (Linux 6.7, `Documentation/admin-guide/mm/pagemap.rst`), used to ask whether a
//! mapping is armed.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use linux_raw_sys::general::{PAGE_IS_PRESENT, PM_SCAN_CHECK_WPASYNC, page_region, pm_scan_arg};
use pindown_core::PAGE_SIZE;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong =
    3 << 30 | (size_of::<pm_scan_arg>() as libc::c_ulong) << 16 | (b'f' as libc::c_ulong) << 8 | 16;

/// `/proc/self/pagemap` of the process that opened it.
#[derive(Debug)]
pub(crate) struct Pagemap(File);

impl Pagemap {
    pub(crate) fn open() -> io::Result<Self> {
        File::open("/proc/self/pagemap").map(Self)
    }

    /// Whether a page is present at `addr` in a mapping that a userfaultfd with WP_ASYNC watches.
    /// An absent page is faulted in first, since an unmapped address looks like an armed one
    /// without its page.
    pub(crate) fn is_armed(&self, addr: usize) -> io::Result<bool> {
        Ok(match self.scan(addr)? {
            Scanned::Present => true,
            Scanned::NotArmed => false,
            Scanned::Absent => populate_read(addr) && self.scan(addr)? == Scanned::Present,
        })
    }

    /// Whether `addr` is mapped and not armed. Faults nothing in.
    pub(crate) fn is_unarmed(&self, addr: usize) -> io::Result<bool> {
        Ok(self.scan(addr)? == Scanned::NotArmed)
    }

    fn scan(&self, addr: usize) -> io::Result<Scanned> {
        let start = (addr & !(PAGE_SIZE - 1)) as u64;
        let mut found = page_region { start: 0, end: 0, categories: 0 };
        let present = u64::from(PAGE_IS_PRESENT);
        let mut arg = pm_scan_arg {
            size: size_of::<pm_scan_arg>() as u64,
            flags: u64::from(PM_SCAN_CHECK_WPASYNC),
            start,
            end: start + PAGE_SIZE as u64,
            walk_end: 0,
            vec: &raw mut found as u64,
            vec_len: 1,
            max_pages: 0,
            category_inverted: 0,
            category_mask: present,
            category_anyof_mask: 0,
            return_mask: present,
        };
        // SAFETY: `arg` is a live pm_scan_arg that says how long it is; `vec` has room for the one
        // region it announces.
        let rc = unsafe { libc::ioctl(self.0.as_raw_fd(), PAGEMAP_SCAN as _, &mut arg) };
        if rc >= 0 {
            return Ok(if rc == 0 { Scanned::Absent } else { Scanned::Present });
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::EPERM) { Ok(Scanned::NotArmed) } else { Err(error) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scanned {
    /// Armed, and the page is there.
    Present,
    /// Armed without the page, or not mapped.
    Absent,
    /// Mapped and not armed.
    NotArmed,
}

fn populate_read(addr: usize) -> bool {
    super::populate::populate(addr & !(PAGE_SIZE - 1), PAGE_SIZE, false).is_ok()
}
