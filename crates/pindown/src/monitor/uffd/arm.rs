//! Which mappings lie under a range, and arming them.

use std::sync::atomic::Ordering;

use pindown_core::{MappingKind, MonitorError, PageRange};

use super::hub::{Hub, io};
use super::stamp::Place;
use crate::sys::procmap::{Found, Vma};
use crate::sys::{headroom, uffd};

/// A range over more mappings than this is not cached.
const MOST_MAPPINGS: usize = 256;
/// Attempts at a range whose mappings keep changing.
const ATTEMPTS: usize = 8;
/// How far around a range neighbours are armed with it.
const MENDS: usize = 3;
/// Mappings armed between two counts of all the process has.
const BETWEEN_COUNTS: u64 = 1024;

/// What lies under a range.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ground {
    /// Private anonymous memory, small or huge pages, in one or more mappings: `whole` is their
    /// extent. Events show every change but those waived.
    Anonymous { whole: PageRange },
    /// A part of a file, shared; its first mapping.
    File(Found),
    /// Something that cannot be covered.
    Refused(&'static str),
}

/// How arming went.
#[derive(Debug)]
pub(super) enum Armed {
    Yes,
    No(&'static str),
}

impl Hub {
    /// Looks at the mappings under `range`.
    pub(super) fn survey(&self, range: PageRange) -> Result<Ground, MonitorError> {
        let mut whole = range;
        let mut at = range.start();
        for _ in 0..MOST_MAPPINGS {
            let found = self.found(at)?;
            let Some((found, extent)) = found.and_then(|f| Some((f, f.vma.range()?))) else {
                return Ok(Ground::Refused("part of it is not mapped"));
            };
            if !is_anonymous(&found) {
                let first = at == range.start();
                let alone = first && extent.contains(range);
                let one_file = || Place::at(&found.vma, at).shows_at(&self.procmap, range);
                let alike = alone || (first && one_file());
                return Ok(if alike { other(found) } else { Ground::Refused("it spans unlike mappings") });
            }
            whole = whole.hull(extent);
            if extent.end() >= range.end() {
                return Ok(Ground::Anonymous { whole });
            }
            at = extent.end();
        }
        Ok(Ground::Refused("it spans too many mappings"))
    }

    fn found(&self, addr: usize) -> Result<Option<Found>, MonitorError> {
        self.procmap.find_kind(addr).map_err(|e| io("asking for a mapping", e))
    }

    /// Arms the anonymous mappings under `range`, whole: a part would split its mapping, and the
    /// application's own mremap across the split would fail with EFAULT.
    ///
    /// Other threads change mappings meanwhile. What counts is that in the end every mapping under
    /// the range is armed: [`verify`](Self::verify) looks, and what changes after that raises an
    /// event, since it is armed.
    pub(super) fn arm(&self, range: PageRange) -> Result<Armed, MonitorError> {
        for _ in 0..ATTEMPTS {
            let whole = match self.survey(range)? {
                Ground::Anonymous { whole } => whole,
                Ground::File(_) => continue, // another mapping than a moment ago
                Ground::Refused(why) => return Ok(Armed::No(why)),
            };
            if !self.has_headroom() {
                return Ok(Armed::No("the process is close to vm.max_map_count: raise it (sysctl)"));
            }
            if let Err(e) = uffd::arm(self.fd.raw(), whole) {
                match e.raw_os_error() {
                    Some(libc::EBUSY) => return Err(MonitorError::Conflict { range }),
                    Some(libc::EINVAL) => continue, // changed meanwhile, or of a kind we misjudged
                    Some(libc::ENOMEM) => {
                        return Ok(Armed::No("the kernel has no room for more mappings"));
                    }
                    _ => return Err(io("UFFDIO_REGISTER", e)),
                }
            }
            if let Some((first, last)) = self.verify(range)? {
                self.mend(first, last)?;
                return Ok(Armed::Yes);
            }
        }
        Ok(Armed::No("its mappings keep changing, or cannot be armed"))
    }

    /// If every mapping under `range` is anonymous and armed: the first and the last of them.
    ///
    /// For each mapping: a page of it is seen present *and armed*, then its extent is asked for. If
    /// the mapping had been replaced between the two, the armed one was unmapped, which raised an
    /// event on this range, and the cache drops what it registers now. If not, then the extent is
    /// that of the armed mapping.
    fn verify(&self, range: PageRange) -> Result<Option<(Vma, Vma)>, MonitorError> {
        let (mut at, mut first) = (range.start(), None);
        loop {
            if !self.pagemap.is_armed(at).map_err(|e| io("PAGEMAP_SCAN", e))? {
                return Ok(None);
            }
            let Some(found) = self.found(at)?.filter(is_anonymous) else { return Ok(None) };
            let first = *first.get_or_insert(found.vma);
            at = found.vma.end;
            if at >= range.end() {
                return Ok(Some((first, found.vma)));
            }
        }
    }

    /// Arms unarmed neighbours that look like pieces of the same mapping.
    ///
    /// The mappings may have been replaced by a larger one between the survey and the arming, which
    /// then split it; or the application has since mapped memory beside it, which the kernel would
    /// have merged with it, were it not armed. The pieces merge when all are armed.
    fn mend(&self, mut first: Vma, mut last: Vma) -> Result<(), MonitorError> {
        for _ in 0..MENDS {
            let before = self.torn_off(first.start.wrapping_sub(1), &first)?;
            let after = self.torn_off(last.end, &last)?;
            if before.is_none() && after.is_none() {
                break;
            }
            (first, last) = (before.unwrap_or(first), after.unwrap_or(last));
            let Ok(whole) = PageRange::new(first.start, last.end) else { break };
            if uffd::arm(self.fd.raw(), whole).is_err() {
                break; // another's, or gone: what was asked for is armed
            }
        }
        Ok(())
    }

    /// The mapping at `addr`, beside `ours`, if it is like it and not armed.
    fn torn_off(&self, addr: usize, ours: &Vma) -> Result<Option<Vma>, MonitorError> {
        let Some(found) = self.found(addr)?.filter(is_anonymous) else { return Ok(None) };
        let alike = found.vma.perms == ours.perms && found.vma.page_size_bytes == ours.page_size_bytes;
        let apart = alike && self.pagemap.is_unarmed(addr).map_err(|e| io("PAGEMAP_SCAN", e))?;
        Ok(apart.then_some(found.vma))
    }

    /// Arms a shared file's mapping so that its unmapping is noticed early. The check at lookup
    /// does not rely on it.
    pub(super) fn arm_if_possible(&self, vma: &Vma) {
        if let Some(range) = vma.range().filter(|_| self.has_headroom()) {
            let _ = uffd::arm(self.fd.raw(), range);
        }
    }

    /// Armed mappings do not merge with unarmed neighbours, so arming costs mappings, of which a
    /// process may have `vm.max_map_count`; at the limit its own malloc fails. Counting them takes
    /// 0.5 µs each, hence only now and then.
    fn has_headroom(&self) -> bool {
        if self.armed.fetch_add(1, Ordering::Relaxed).is_multiple_of(BETWEEN_COUNTS) {
            self.crowded.store(headroom::is_crowded(&self.procmap), Ordering::Relaxed);
        }
        !self.crowded.load(Ordering::Relaxed)
    }
}

fn is_anonymous(found: &Found) -> bool {
    found.kind == MappingKind::Anonymous || found.anonymous_huge
}

/// What is not anonymous.
fn other(found: Found) -> Ground {
    match found.kind {
        MappingKind::Shmem | MappingKind::SharedFile => Ground::File(found),
        MappingKind::Hugetlb if found.vma.perms.shared => Ground::File(found),
        MappingKind::SharedAnonymous => {
            Ground::Refused("shared memory without a descriptor: another process can take its pages unseen")
        }
        MappingKind::PrivateFile | MappingKind::Hugetlb => {
            Ground::Refused("a private file mapping: truncation by others is not seen")
        }
        _ => Ground::Refused("device or secret memory"),
    }
}
