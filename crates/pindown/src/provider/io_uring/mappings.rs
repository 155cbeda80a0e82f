//! [`Mappings`]: what kind of memory a range is, where the kernel tells without reading all its maps.

use pindown_core::{MappingKind, PAGE_SIZE, PageRange};

use crate::sys::procmap::{ProcMap, Vma};

/// Mappings looked at before giving up: a range over more is rare, and each look costs a call.
const LOOKS: usize = 16;

/// Answers with `PROCMAP_QUERY` (Linux 6.11). Before, it knows nothing: reading `/proc/self/maps` takes
/// milliseconds in a process with many mappings.
#[derive(Debug)]
pub(super) struct Mappings(Option<ProcMap>);

/// What stands in the way of pinning a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    Hole,
    NotWritable,
    SharedFile,
    Special,
    Unknown,
}

impl Mappings {
    pub(super) fn open() -> Self {
        Self(ProcMap::open().ok().filter(ProcMap::has_query))
    }

    /// Whether any page of the range is a huge page of a pool (hugetlbfs); true when there is too much to
    /// look at.
    pub(super) fn has_hugetlb(&self, range: PageRange) -> bool {
        let Some(map) = &self.0 else { return false };
        let mut addr = range.start();
        for _ in 0..LOOKS {
            match map.find(addr, false) {
                Ok(Some(vma)) if vma.page_size_bytes > PAGE_SIZE as u64 => return true,
                Ok(Some(vma)) if vma.end < range.end() => addr = vma.end,
                _ => return false,
            }
        }
        true
    }

    /// The first thing in the range that io_uring does not pin.
    pub(super) fn obstacle(&self, range: PageRange) -> Obstacle {
        let Some(map) = &self.0 else { return Obstacle::Unknown };
        let mut addr = range.start();
        for _ in 0..LOOKS {
            match map.find_kind(addr) {
                Ok(None) => return Obstacle::Hole,
                Ok(Some(found)) => match obstacle_in(&found.vma, found.kind) {
                    Obstacle::Unknown if found.vma.end < range.end() => addr = found.vma.end,
                    obstacle => return obstacle,
                },
                Err(_) => return Obstacle::Unknown,
            }
        }
        Obstacle::Unknown
    }
}

fn obstacle_in(vma: &Vma, kind: MappingKind) -> Obstacle {
    match kind {
        MappingKind::Special => Obstacle::Special,
        _ if !vma.perms.writable => Obstacle::NotWritable,
        MappingKind::SharedFile => Obstacle::SharedFile,
        _ => Obstacle::Unknown,
    }
}
