//! The check at lookup of a shared mapping of a tmpfs file (memfd, `/dev/shm`).
//!
//! What is registered are pages of the file. They are what the CPU sees at the range as long as
//!
//! - the range shows the same part of the same file: asked of the kernel, mapping, device, inode,
//!   offset (`PROCMAP_QUERY`). This sees shmdt, SHM_REMAP and remap_file_pages, of which
//!   userfaultfd says nothing; and a mapping that went and came back is the same pages again; and
//! - the file still has these pages: truncation, hole punching and MADV_REMOVE, by whatever
//!   process, set the file's ctime after they took the pages (`shmem_setattr`,
//!   `shmem_truncate_range`), and with multigrain timestamps (Linux 6.13) to a value that no
//!   `statx` before has returned. Or seals forbid all three.
//!
//! So the check is complete by itself, and a stamp taken before the pages are pinned shows every
//! change since, including one that was under way. Other file systems are not cached: some set
//! ctime before they drop pages, some have coarse or remote clocks. Nor are hugetlb files without
//! seals: punching a hole does not set their ctime.

use std::sync::atomic::{AtomicI32, Ordering};

use pindown_core::{PageRange, Stamp};

use crate::sys::files;
use crate::sys::populate::populate;
use crate::sys::procmap::{Found, ProcMap, Vma};

/// What a [`Stamp`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    fd: i32,
    minor: u32,
    inode: u64,
    offset_bytes: u64,
    /// `None`: sealed.
    ctime_ns: Option<u64>,
}

const SEALED: u64 = 1 << 63;
/// A file's range in more mappings than this is not cached: each is a query at each lookup.
const MOST_MAPPINGS: usize = 16;

impl FileStamp {
    fn pack(self) -> Stamp {
        let sealed = if self.ctime_ns.is_none() { SEALED } else { 0 };
        let first = u64::from(self.fd as u32) | u64::from(self.minor & 0xf_ffff) << 32 | sealed;
        Stamp([first, self.inode, self.offset_bytes, self.ctime_ns.unwrap_or(0)])
    }

    fn unpack(stamp: Stamp) -> Self {
        let [first, inode, offset_bytes, ctime] = stamp.0;
        Self {
            fd: first as u32 as i32,
            minor: (first >> 32) as u32 & 0xf_ffff,
            inode,
            offset_bytes,
            ctime_ns: (first & SEALED == 0).then_some(ctime),
        }
    }
}

/// Descriptors found last, by inode: hints only, which are looked at before they are believed.
static RECENT: [AtomicI32; 64] = [const { AtomicI32::new(-1) }; 64];

/// Makes the stamp of a mapping that contains `range`, or says why it cannot be cached.
pub(super) fn of(
    procmap: &ProcMap,
    found: &Found,
    range: PageRange,
    multigrain: bool,
) -> Result<Stamp, &'static str> {
    let vma = &found.vma;
    if !procmap.has_query() {
        return Err("a file mapping is checked with PROCMAP_QUERY, which needs Linux 6.11");
    }
    if vma.device.0 != 0 {
        return Err("a file that is not in a tmpfs: its changes are not seen reliably");
    }
    // Looking through all open descriptors takes 1 µs each: remember where a file was found.
    let recent = &RECENT[vma.inode as usize % RECENT.len()];
    let fd = files::find_open(vma.device, vma.inode, recent.load(Ordering::Relaxed))
        .ok_or("no descriptor is open for its file: keep the memfd open")?;
    recent.store(fd, Ordering::Relaxed);
    // Before the stamp is taken: the first write to a page sets ctime, and pinning may be it.
    let _ = populate(range.start(), range.len_bytes(), vma.perms.writable);
    let ctime_ns = match files::is_sealed(fd) {
        true => None,
        false => Some(ctime(fd, found, multigrain)?),
    };
    let offset_bytes = vma.offset_at(range.start());
    Ok(FileStamp { fd, minor: vma.device.1, inode: vma.inode, offset_bytes, ctime_ns }.pack())
}

fn ctime(fd: i32, found: &Found, multigrain: bool) -> Result<u64, &'static str> {
    if !files::is_tmpfs(fd) {
        return Err("a file that is neither in a tmpfs nor sealed: its changes are not seen reliably");
    }
    if !multigrain {
        return Err("ctime is coarse before Linux 6.13: seal the memfd (F_SEAL_SHRINK, F_SEAL_FUTURE_WRITE)");
    }
    let state = files::state(fd).map_err(|_| "its descriptor was closed")?;
    let same = state.device == found.vma.device && state.inode == found.vma.inode;
    same.then_some(state.ctime_ns).ok_or("its descriptor was closed")
}

/// Whether `range` still shows what it showed when the stamp was made.
pub(super) fn is_current(procmap: &ProcMap, range: PageRange, stamp: Stamp) -> bool {
    let stamp = FileStamp::unpack(stamp);
    let place = Place { device: (0, stamp.minor), inode: stamp.inode, offset_bytes: stamp.offset_bytes };
    place.shows_at(procmap, range) && stamp.ctime_ns.is_none_or(|ctime_ns| same_file(&stamp, ctime_ns))
}

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    device: (u32, u32),
    inode: u64,
    offset_bytes: u64,
}

impl Place {
    /// What is shown at `addr`, which `vma` contains.
    pub(super) fn at(vma: &Vma, addr: usize) -> Self {
        Self { device: vma.device, inode: vma.inode, offset_bytes: vma.offset_at(addr) }
    }

    /// Whether all of `range` shows this part of the file, shared, in one mapping or a few (they
    /// differ in protection, say).
    pub(super) fn shows_at(self, procmap: &ProcMap, range: PageRange) -> bool {
        let mut at = range.start();
        for _ in 0..MOST_MAPPINGS {
            let Ok(Some(vma)) = procmap.query(at, false, None) else { return false };
            let offset_bytes = self.offset_bytes.wrapping_add((at - range.start()) as u64);
            let same = vma.perms.shared && vma.device == self.device && vma.inode == self.inode;
            if !same || vma.offset_at(at) != offset_bytes {
                return false;
            }
            if vma.end >= range.end() {
                return true;
            }
            at = vma.end;
        }
        false
    }
}

fn same_file(stamp: &FileStamp, ctime_ns: u64) -> bool {
    files::state(stamp.fd).is_ok_and(|now| {
        now.device == (0, stamp.minor) && now.inode == stamp.inode && now.ctime_ns == ctime_ns
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_survive_packing() {
        for ctime_ns in [None, Some(0), Some(u64::MAX)] {
            let stamp =
                FileStamp { fd: i32::MAX, minor: 0xf_ffff, inode: u64::MAX, offset_bytes: !0xfff, ctime_ns };
            assert_eq!(FileStamp::unpack(stamp.pack()), stamp);
        }
    }
}
