//! Registrations whose memory is gone.

use std::io;
use std::time::{Duration, Instant};

use pindown_core::{Cache, EventKind, PageRange, Provider};

use crate::sys::procmap::ProcMap;

/// Registrations that are taken from the cache at a time.
const BATCH: usize = 64;
/// Of a core, the sweep takes one part in so many.
const SHARE: u32 = 200;
/// A process that was stopped for long does not make up for it at once.
const LONGEST: Duration = Duration::from_secs(2);

/// Goes round through all registrations, a little at each tick.
#[derive(Debug)]
pub(super) struct Sweep {
    procmap: Option<ProcMap>,
    from: u32,
    last: Option<Instant>,
    not_before: Option<Instant>,
}

impl Sweep {
    pub(super) fn new() -> Self {
        Self { procmap: ProcMap::open().ok(), from: 0, last: None, not_before: None }
    }

    /// Works for a fixed share of the time since the last call.
    pub(super) fn tick<P: Provider>(&mut self, cache: &Cache<P>, now: Instant) {
        let Some(procmap) = self.procmap.as_ref() else { return };
        if !procmap.has_query() {
            return self.pass_over_maps(cache, now);
        }
        let since =
            self.last.replace(now).map_or(Duration::from_millis(100), |last| (now - last).min(LONGEST));
        let end = now + since / SHARE;
        let begin = self.from;
        loop {
            let (ranges, next) = cache.ranges_from(self.from, BATCH);
            report(cache, ranges.into_iter().filter(|r| !is_mapped(procmap, *r)));
            self.from = next.unwrap_or(0);
            if self.from == 0 || self.from == begin || Instant::now() >= end {
                return;
            }
        }
    }

    /// Without the query all mappings must be read: as seldom as that is dear.
    fn pass_over_maps<P: Provider>(&mut self, cache: &Cache<P>, now: Instant) {
        if self.not_before.is_some_and(|at| now < at) {
            return;
        }
        _ = all(cache);
        self.not_before = Some(now + Instant::now().duration_since(now) * SHARE);
    }
}

fn report<P: Provider>(cache: &Cache<P>, gone: impl Iterator<Item = PageRange>) -> usize {
    let notifier = cache.notifier();
    gone.map(|range| notifier.invalidate(range, EventKind::Sweep)).count()
}

/// Whether every page of `range` is mapped.
fn is_mapped(procmap: &ProcMap, range: PageRange) -> bool {
    let mut at = range.start();
    while at < range.end() {
        match procmap.find(at, false) {
            Ok(Some(vma)) => at = vma.end,
            Ok(None) => return false,
            Err(_) => return true, // not known to be gone
        }
    }
    true
}

/// One pass over everything, with one reading of the mappings. The reading comes after the list of
/// ranges: what is registered later is not judged by what was mapped before.
pub(super) fn all<P: Provider>(cache: &Cache<P>) -> io::Result<usize> {
    let (mut ranges, mut from) = (Vec::new(), Some(0));
    while let Some(at) = from {
        let (some, next) = cache.ranges_from(at, BATCH * 16);
        ranges.extend(some);
        from = next;
    }
    let mapped = mapped_ranges()?;
    Ok(report(cache, ranges.into_iter().filter(|r| !is_within(&mapped, *r))))
}

/// What is mapped, neighbours joined, in order.
fn mapped_ranges() -> io::Result<Vec<(usize, usize)>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let mut joined: Vec<(usize, usize)> = Vec::new();
    for line in maps.lines() {
        let Some((start, rest)) = line.split_once('-') else { continue };
        let end = rest.split(' ').next().unwrap_or_default();
        let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)) else {
            continue;
        };
        match joined.last_mut().filter(|last| last.1 == start) {
            Some(last) => last.1 = end,
            None => joined.push((start, end)),
        }
    }
    Ok(joined)
}

fn is_within(mapped: &[(usize, usize)], range: PageRange) -> bool {
    let at = mapped.partition_point(|m| m.1 <= range.start());
    mapped.get(at).is_some_and(|m| m.0 <= range.start() && range.end() <= m.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::test_memory::Memory;

    #[test]
    fn what_is_mapped_is_known_either_way() {
        let memory = Memory::anonymous(3);
        let procmap = ProcMap::open().expect("/proc");
        let check = |range| (is_mapped(&procmap, range), is_within(&mapped_ranges().expect("maps"), range));
        assert_eq!(check(memory.pages(0, 3)), (true, true));
        // Below vm.mmap_min_addr, where nothing ever is.
        assert_eq!(check(PageRange::new(0x1000, 0x3000).expect("a range")), (false, false));
    }
}
