//! What bounds regions: the device, RLIMIT_MEMLOCK, and mappings when fork support splits them.

use std::fs;

use pindown_core::{PageRange, ProviderCaps};

use super::options::ForkState;
use crate::sys::verbs::{DeviceAttr, Pd};

/// Regions longer than this are not probed for: nothing is lost by registering in pieces of it.
const LONGEST_PROBED_BYTES: u64 = 8 << 30;
const FIRST_PROBED_BYTES: u64 = 1 << 30;
const SHORTEST_PROBED_BYTES: u64 = 1 << 20;

/// The capabilities that the cache works with.
pub(super) fn caps(attr: &DeviceAttr, pd: &Pd, on_demand: bool, fork: ForkState) -> ProviderCaps {
    let mut caps = ProviderCaps::default();
    caps.max_regions = attr.max_mr;
    caps.max_region_bytes = attr.max_mr_size_bytes;
    caps.max_segments = attr.max_sge;
    if on_demand {
        caps.max_region_bytes =
            longest_on_demand(attr.max_mr_size_bytes, |bytes| pd.can_register_on_demand(bytes));
        caps.coherent = true;
    }
    use crate::budget::kernel_memory::{VERBS, VERBS_ON_DEMAND};
    if on_demand { &VERBS_ON_DEMAND } else { &VERBS }.tell(&mut caps);
    if fork == ForkState::Enabled {
        caps.max_regions = caps.max_regions.min(vma_headroom() / 2);
    }
    caps
}

/// The longest on-demand region, found by trying: devices do not say (soft-RoCE takes 1 GiB and
/// answers EINVAL to 2 GiB).
fn longest_on_demand(most: u64, works: impl Fn(u64) -> bool) -> u64 {
    let mut good = FIRST_PROBED_BYTES.min(most);
    if !works(good) {
        while good > SHORTEST_PROBED_BYTES {
            good /= 2;
            if works(good) {
                break;
            }
        }
        return good;
    }
    while good < LONGEST_PROBED_BYTES.min(most) && works(good * 2) {
        good *= 2;
    }
    good
}

/// How many mappings the process can still gain while keeping half of what is left to itself.
/// Each `MADV_DONTFORK` range splits up to two off (`vm.max_map_count`, proc_sys_vm(5)).
fn vma_headroom() -> u64 {
    let most = read_number("/proc/sys/vm/max_map_count").unwrap_or(65_530);
    let now = fs::read("/proc/self/maps").map_or(0, |maps| maps.iter().filter(|b| **b == b'\n').count());
    most.saturating_sub(now as u64) / 2
}

fn read_number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The soft RLIMIT_MEMLOCK in bytes, `None` when unlimited (`/proc/self/limits`, proc_pid_limits(5)).
pub(super) fn memlock_bytes() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find(|l| l.starts_with("Max locked memory"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

/// Bytes pinned by this process (`VmPin` of `/proc/self/status`, proc_pid_status(5)).
pub(super) fn pinned_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmPin:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// `range` in pieces that one region each can hold, in order. Pieces meet without a gap, so
/// transfers are cut at the same places.
pub fn pieces(range: PageRange, max_region_bytes: u64) -> impl Iterator<Item = PageRange> {
    let longest = usize::try_from(max_region_bytes).unwrap_or(usize::MAX);
    let step = (longest & !(pindown_core::PAGE_SIZE - 1)).max(pindown_core::PAGE_SIZE);
    (range.start()..range.end())
        .step_by(step)
        .filter_map(move |start| PageRange::new(start, start.saturating_add(step).min(range.end())).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probing_finds_the_limit_from_both_sides() {
        let up_to = |limit: u64| longest_on_demand(u64::MAX, move |bytes| bytes <= limit);
        assert_eq!(up_to(1 << 30), 1 << 30, "soft-RoCE");
        assert_eq!(up_to(u64::MAX), LONGEST_PROBED_BYTES);
        assert_eq!(up_to(300 << 20), 256 << 20);
        assert_eq!(longest_on_demand(1 << 29, |_| true), 1 << 29, "never past max_mr_size");
    }

    #[test]
    fn pieces_cover_without_gap_or_overlap() {
        let whole = PageRange::new(0x1000, 0x1000 + (10 << 12)).unwrap();
        let parts: Vec<_> = pieces(whole, (4 << 12) + 77).collect();
        assert_eq!(parts.iter().map(|p| p.pages()).collect::<Vec<_>>(), [4, 4, 2]);
        assert_eq!((parts[0].start(), parts[2].end()), (whole.start(), whole.end()));
        assert!(parts.windows(2).all(|w| w[0].end() == w[1].start()));
        assert_eq!(pieces(whole, u64::MAX).count(), 1);
    }

    #[test]
    fn this_process_has_limits() {
        assert!(vma_headroom() > 100);
        assert!(memlock_bytes().is_none_or(|b| b > 0));
        assert_eq!(pinned_bytes() % 4096, 0);
    }
}
