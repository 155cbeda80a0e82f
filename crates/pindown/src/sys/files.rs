//! Open files behind mappings: found by device and inode, watched by their change time.

use std::fs;
use std::io;
use std::os::fd::RawFd;

/// What identifies a file and shows that it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    /// Nanoseconds since 1970.
    pub(crate) ctime_ns: u64,
}

/// `statx(2)` of an open descriptor (Linux 4.11). No allocation.
pub(crate) fn state(fd: RawFd) -> io::Result<FileState> {
    // SAFETY: statx is plain integers, for which zeroes are valid.
    let mut s: libc::statx = unsafe { std::mem::zeroed() };
    let (flags, mask) = (libc::AT_EMPTY_PATH, libc::STATX_INO | libc::STATX_CTIME);
    // SAFETY: the path is an empty C string, `s` a live statx for the kernel to fill.
    let rc = unsafe { libc::statx(fd, c"".as_ptr(), flags, mask, &mut s) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    let ctime_ns =
        (s.stx_ctime.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(s.stx_ctime.tv_nsec));
    Ok(FileState { device: (s.stx_dev_major, s.stx_dev_minor), inode: s.stx_ino, ctime_ns })
}

/// An open descriptor of this process for the file, if there is one. `last` is looked at first.
pub(crate) fn find_open(device: (u32, u32), inode: u64, last: RawFd) -> Option<RawFd> {
    let is_it = |fd: RawFd| state(fd).is_ok_and(|s| s.device == device && s.inode == inode);
    if last >= 0 && is_it(last) {
        return Some(last);
    }
    let open = fs::read_dir("/proc/self/fd").ok()?;
    open.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).find(|&fd| is_it(fd))
}

/// Whether the file lies in a tmpfs (memfd, `/dev/shm`, SysV).
pub(crate) fn is_tmpfs(fd: RawFd) -> bool {
    // SAFETY: statfs is plain integers, for which zeroes are valid; the kernel fills it.
    unsafe {
        let mut s: libc::statfs = std::mem::zeroed();
        libc::fstatfs(fd, &mut s) == 0 && s.f_type == libc::TMPFS_MAGIC
    }
}

/// Whether seals forbid to take any page from the file: neither shrinking (F_SEAL_SHRINK) nor
/// punching a hole, by fallocate or MADV_REMOVE (F_SEAL_WRITE or F_SEAL_FUTURE_WRITE:
/// `shmem_fallocate`, `hugetlbfs_punch_hole`). Seals are never removed (`fcntl(2)`).
pub(crate) fn is_sealed(fd: RawFd) -> bool {
    // SAFETY: F_GET_SEALS takes no argument.
    let seals = unsafe { libc::fcntl(fd, libc::F_GET_SEALS) };
    let no_punch = libc::F_SEAL_WRITE | libc::F_SEAL_FUTURE_WRITE;
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0 && seals & no_punch != 0
}

/// Whether each change of a tmpfs file that comes after a `statx` shows in its ctime.
///
/// Since Linux 6.13 (`Documentation/filesystems/multigrain-ts.rst`) it does; before, ctime moves
/// with the timer tick, and two changes in one tick look like one. Measured rather than read off
/// the version, since distributions carry patches back: 32 changes in a row must all differ.
pub(crate) fn has_multigrain_ctime() -> bool {
    // SAFETY: the name is a C string; the descriptor is closed below.
    let fd = unsafe { libc::memfd_create(c"pindown-probe".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return false;
    }
    let mut last = state(fd).map_or(0, |s| s.ctime_ns);
    let all_differ = (1..=32).all(|pages: i64| {
        // SAFETY: a descriptor of ours; no pages are allocated.
        let grown = unsafe { libc::ftruncate(fd, pages * 4096) } == 0;
        let now = state(fd).map_or(0, |s| s.ctime_ns);
        let differs = grown && now != last;
        last = now;
        differs
    });
    // SAFETY: opened above and not handed on.
    unsafe { libc::close(fd) };
    all_differ
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::test_memory::memfd;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_mapped_file_is_found_among_the_open_ones() {
        let file = memfd(1);
        let s = state(file.as_raw_fd()).unwrap();
        assert_eq!(find_open(s.device, s.inode, -1), Some(file.as_raw_fd()));
        assert_eq!(find_open(s.device, s.inode, file.as_raw_fd()), Some(file.as_raw_fd()));
        assert!(is_tmpfs(file.as_raw_fd()));
        drop(file);
        assert_eq!(find_open(s.device, s.inode, -1), None);
    }

    #[test]
    fn seals_that_keep_pages() {
        for (seals, keeps) in [
            (libc::F_SEAL_SHRINK, false),
            (libc::F_SEAL_FUTURE_WRITE, false),
            (libc::F_SEAL_SHRINK | libc::F_SEAL_GROW, false),
            (libc::F_SEAL_SHRINK | libc::F_SEAL_FUTURE_WRITE, true),
            (libc::F_SEAL_SHRINK | libc::F_SEAL_WRITE, true),
        ] {
            let file = memfd(2);
            // SAFETY: F_ADD_SEALS takes an integer.
            assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
            assert_eq!(is_sealed(file.as_raw_fd()), keeps);
            // The claim itself: what is called sealed refuses to lose pages.
            let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: changes only the test's file.
            let punched = unsafe { libc::fallocate(file.as_raw_fd(), punch, 0, 4096) } == 0;
            assert_eq!(punched || file.set_len(4096).is_ok(), !keeps);
        }
    }

    #[test]
    fn ctime_shows_each_loss_of_pages() {
        if !has_multigrain_ctime() {
            println!("skipped: ctime is coarse before Linux 6.13");
            return;
        }
        let file = memfd(4);
        let fd = file.as_raw_fd();
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let mut unseen = 0;
        for i in 0..20_000u64 {
            let before = state(fd).unwrap();
            if i % 2 == 0 {
                // SAFETY: changes only the test's file.
                assert_eq!(unsafe { libc::fallocate(fd, punch, 0, 4096) }, 0);
            } else {
                file.set_len(4096).unwrap();
                file.set_len(4 * 4096).unwrap();
            }
            unseen += u32::from(state(fd).unwrap().ctime_ns == before.ctime_ns);
        }
        assert_eq!(unseen, 0);
    }
}
