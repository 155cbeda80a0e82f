//! How close the process is to `vm.max_map_count`.

use super::procmap::ProcMap;

/// The kernel's default of `vm.max_map_count`.
const DEFAULT_MAX_MAP_COUNT: usize = 65_530;

/// `vm.max_map_count`, or its default where it cannot be read.
pub(crate) fn max_map_count() -> usize {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    text.ok().and_then(|t| t.trim().parse().ok()).unwrap_or(DEFAULT_MAX_MAP_COUNT)
}

/// Mappings in use, counted no further than `most`.
pub(crate) fn mappings_in_use(procmap: &ProcMap, most: usize) -> usize {
    let (mut at, mut count) = (0, 0);
    while count < most {
        match procmap.find(at, true) {
            Ok(Some(vma)) => (at, count) = (vma.end, count + 1),
            _ => break,
        }
    }
    count
}

/// Whether more than half of the mappings allowed are in use: the rest is the application's.
pub(crate) fn is_crowded(procmap: &ProcMap) -> bool {
    if !procmap.has_query() {
        return false; // counting would read all of /proc/self/maps for each mapping
    }
    let most = max_map_count() / 2;
    mappings_in_use(procmap, most) >= most
}
