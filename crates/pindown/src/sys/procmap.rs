//! One mapping at a time: `PROCMAP_QUERY` (Linux 6.11, `fs/proc/task_mmu.c`), or a reading of
//! `/proc/self/maps` where the kernel has no such query.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use linux_raw_sys::general::{procmap_query, procmap_query_flags as flag};
use pindown_core::{MappingKind, PAGE_SIZE, PageRange};

use super::maps::{Perms, parse_line};

/// `_IOWR('f', 17, struct procmap_query)`; the generic encoding is right for x86-64 and arm64.
const PROCMAP_QUERY: libc::c_ulong =
    3 << 30 | (size_of::<procmap_query>() as libc::c_ulong) << 16 | (b'f' as libc::c_ulong) << 8 | 17;

/// One mapping ("vma" to the kernel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vma {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) perms: Perms,
    pub(crate) page_size_bytes: u64,
    pub(crate) offset_bytes: u64,
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
}

impl Vma {
    /// The part of it that a process may map; `None` for the vsyscall page.
    pub(crate) fn range(&self) -> Option<PageRange> {
        PageRange::new(self.start, self.end).ok()
    }

    /// Offset in its file of what is mapped at `addr`.
    pub(crate) fn offset_at(&self, addr: usize) -> u64 {
        self.offset_bytes.wrapping_add((addr.wrapping_sub(self.start)) as u64)
    }

    /// Huge pages without a file that could be truncated: mapped anonymous and private.
    pub(crate) fn is_anonymous_huge(&self, name: &[u8]) -> bool {
        !self.perms.shared && name.starts_with(b"/anon_hugepage")
    }

    /// What kind of memory it is. `name` as `/proc/self/maps` shows it.
    pub(crate) fn kind(&self, name: &[u8]) -> MappingKind {
        let is = |prefix: &[u8]| name.starts_with(prefix);
        if self.page_size_bytes > PAGE_SIZE as u64 {
            return MappingKind::Hugetlb;
        }
        if self.inode == 0 && self.device == (0, 0) {
            let special = is(b"[vvar") || is(b"[vdso") || is(b"[vsyscall") || is(b"[uprobes");
            return if special { MappingKind::Special } else { MappingKind::Anonymous };
        }
        let device_node = is(b"/dev/") && !is(b"/dev/shm/") && !is(b"/dev/zero") && !is(b"/dev/hugepages");
        if device_node || is(b"anon_inode:") || is(b"/secretmem") {
            return MappingKind::Special;
        }
        match self.perms.shared {
            false => MappingKind::PrivateFile,
            true if is(b"/dev/zero") || is(b"/SYSV") => MappingKind::SharedAnonymous,
            true if is(b"/memfd:") || is(b"/dev/shm/") => MappingKind::Shmem,
            true => MappingKind::SharedFile,
        }
    }
}

/// A mapping and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) vma: Vma,
    pub(crate) kind: MappingKind,
    pub(crate) anonymous_huge: bool,
}

impl Found {
    fn new(vma: Vma, name: &[u8]) -> Self {
        Self { vma, kind: vma.kind(name), anonymous_huge: vma.is_anonymous_huge(name) }
    }
}

/// Answers questions about the mappings of the process that opened it.
#[derive(Debug)]
pub(crate) struct ProcMap {
    maps: File,
    owner: u32,
    has_query: AtomicBool,
}

impl ProcMap {
    /// Opens `/proc/self/maps`.
    pub(crate) fn open() -> io::Result<Self> {
        let maps = File::open("/proc/self/maps")?;
        Ok(Self { maps, owner: std::process::id(), has_query: AtomicBool::new(true) })
    }

    /// Whether the kernel answers `PROCMAP_QUERY`.
    pub(crate) fn has_query(&self) -> bool {
        let _ = self.query(0, false, None);
        self.has_query.load(Ordering::Relaxed)
    }

    /// The mapping that contains `addr`; with `or_next`, else the next above it.
    pub(crate) fn find(&self, addr: usize, or_next: bool) -> io::Result<Option<Vma>> {
        if self.owner != std::process::id() {
            return Self::open()?.find(addr, or_next); // a forked child's file still shows its parent
        }
        match self.query(addr, or_next, None) {
            Err(e) if !self.has_query.load(Ordering::Relaxed) => {
                tracing::trace!("PROCMAP_QUERY: {e}");
                Ok(find_in_maps(addr, or_next)?.map(|found| found.vma))
            }
            answer => answer,
        }
    }

    /// The mapping that contains `addr` and its kind.
    pub(crate) fn find_kind(&self, addr: usize) -> io::Result<Option<Found>> {
        let mut name = [0u8; 256];
        let found = match self.query(addr, false, Some(&mut name)) {
            // ENAMETOOLONG: some deep path, which no special name is.
            Err(e) if e.raw_os_error() == Some(libc::ENAMETOOLONG) => self.query(addr, false, None)?,
            Err(_) if !self.has_query.load(Ordering::Relaxed) => {
                return find_in_maps(addr, false);
            }
            answer => answer?,
        };
        let text = name.split(|&b| b == 0).next().unwrap_or(&[]);
        Ok(found.map(|vma| Found::new(vma, text)))
    }

    /// One `PROCMAP_QUERY`. `Ok(None)`: nothing is mapped there. No allocation, no lock of ours.
    pub(crate) fn query(
        &self,
        addr: usize,
        or_next: bool,
        name: Option<&mut [u8; 256]>,
    ) -> io::Result<Option<Vma>> {
        // SAFETY: the struct is plain integers, for which zeroes are valid.
        let mut q: procmap_query = unsafe { std::mem::zeroed() };
        q.size = size_of::<procmap_query>() as u64;
        q.query_addr = addr as u64;
        q.query_flags = if or_next { flag::PROCMAP_QUERY_COVERING_OR_NEXT_VMA as u64 } else { 0 };
        if let Some(buffer) = name {
            q.vma_name_size = buffer.len() as u32;
            q.vma_name_addr = buffer.as_mut_ptr() as u64;
        }
        // SAFETY: `q` is a live procmap_query whose size field says how long it is, and the name
        // buffer, if any, is writable for `vma_name_size` bytes; the kernel writes only to those.
        let rc = unsafe { libc::ioctl(self.maps.as_raw_fd(), PROCMAP_QUERY as _, &mut q) };
        if rc == 0 {
            return Ok(Some(from_query(&q)));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOENT) => Ok(None),
            Some(libc::ENOTTY | libc::EINVAL) => {
                self.has_query.store(false, Ordering::Relaxed);
                Err(error)
            }
            _ => Err(error),
        }
    }
}

fn from_query(q: &procmap_query) -> Vma {
    let has = |bit: flag| q.vma_flags & bit as u64 != 0;
    Vma {
        start: q.vma_start as usize,
        end: q.vma_end as usize,
        perms: Perms {
            readable: has(flag::PROCMAP_QUERY_VMA_READABLE),
            writable: has(flag::PROCMAP_QUERY_VMA_WRITABLE),
            executable: has(flag::PROCMAP_QUERY_VMA_EXECUTABLE),
            shared: has(flag::PROCMAP_QUERY_VMA_SHARED),
        },
        page_size_bytes: q.vma_page_size,
        offset_bytes: q.vma_offset,
        device: (q.dev_major, q.dev_minor),
        inode: q.inode,
    }
}

/// Reads `/proc/self/maps` up to the answer.
fn find_in_maps(addr: usize, or_next: bool) -> io::Result<Option<Found>> {
    let mut reader = BufReader::new(File::open("/proc/self/maps")?);
    let mut text = Vec::with_capacity(256);
    loop {
        text.clear();
        if reader.read_until(b'\n', &mut text)? == 0 {
            return Ok(None);
        }
        let Some(line) = parse_line(&text) else { continue };
        if line.end <= addr {
            continue;
        }
        if line.start > addr && !or_next {
            return Ok(None);
        }
        // The file does not give page sizes; anonymous huge pages show by name.
        let huge = line.name.starts_with(b"/anon_hugepage");
        let vma = Vma {
            start: line.start,
            end: line.end,
            perms: line.perms,
            page_size_bytes: if huge { 2 << 20 } else { PAGE_SIZE as u64 },
            offset_bytes: line.offset_bytes,
            device: line.device,
            inode: line.inode,
        };
        return Ok(Some(Found::new(vma, line.name)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::test_memory::{Memory, memfd};

    fn kind_at(addr: usize) -> MappingKind {
        ProcMap::open().unwrap().find_kind(addr).unwrap().unwrap().kind
    }

    #[test]
    fn kinds_are_told_apart() {
        assert_eq!(kind_at(Memory::anonymous(4).addr()), MappingKind::Anonymous);
        let on_the_stack = std::hint::black_box(0u8);
        assert_eq!(kind_at(&raw const on_the_stack as usize), MappingKind::Anonymous);
        assert_eq!(kind_at(Box::leak(Box::new(1u64)) as *const u64 as usize), MappingKind::Anonymous);
        assert_eq!(kind_at(Memory::shared_anonymous(4).addr()), MappingKind::SharedAnonymous);
        let fd = memfd(4);
        assert_eq!(kind_at(Memory::of_file(&fd, 4, true).addr()), MappingKind::Shmem);
        assert_eq!(kind_at(Memory::of_file(&fd, 4, false).addr()), MappingKind::PrivateFile);
        let exe = File::open("/proc/self/exe").unwrap();
        assert_eq!(kind_at(Memory::of_file_read_only(&exe, 1).addr()), MappingKind::SharedFile);
    }

    #[test]
    fn both_ways_agree() {
        let map = ProcMap::open().unwrap();
        if !map.has_query() {
            println!("skipped: no PROCMAP_QUERY before Linux 6.11");
            return;
        }
        let fd = memfd(8);
        let memory = [Memory::anonymous(3), Memory::shared_anonymous(3), Memory::of_file(&fd, 8, true)];
        for m in &memory {
            let slow = find_in_maps(m.addr() + PAGE_SIZE, false).unwrap().unwrap();
            assert_eq!(map.find(m.addr() + PAGE_SIZE, false).unwrap(), Some(slow.vma));
            assert_eq!(kind_at(m.addr()), slow.kind);
        }
        assert_eq!(map.find(0, false).unwrap(), None);
        assert_eq!(map.find(0, true).unwrap(), find_in_maps(0, true).unwrap().map(|f| f.vma));
    }
}
