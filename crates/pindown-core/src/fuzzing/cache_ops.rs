//! The whole cache beside the simulated page table.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::bytes::Bytes;
use super::monitor::{OneThread, PAGES, UNCACHEABLE, Zoned, range};
use crate::sim::{Call, Fault, Sim};
use crate::{
    Access, AcquireError, Cache, Config, EventKind, FlushError, PAGE_SIZE, PageRange, PolicyKind,
    Registration,
};

/// Any sequence of calls, changes and faults. Checked throughout: nothing acquired after a change is
/// stale; what is held stays usable; budget; books; the bound of widening.
pub fn cache_ops(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let mut run = Run::new(&mut bytes);
    while !bytes.is_empty() {
        run.step(&mut bytes);
        run.check();
    }
    run.finish();
}

/// One held registration.
struct Kept {
    registration: Registration<Sim>,
    /// Pages that changed since it was acquired.
    changed: BTreeSet<u64>,
    /// Something overlapping was reported since.
    reported: bool,
}

struct Run {
    sim: Sim,
    cache: Cache<Sim>,
    monitor: Arc<Zoned>,
    kept: Vec<Kept>,
    requested: BTreeSet<u64>,
    /// Nothing is kept, rights are local, no faults: then the bound of widening holds at all times.
    plain: bool,
    faults: bool,
    max_bytes: u64,
    max_regions: u64,
}

impl Run {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let (flags, sim, monitor) = (bytes.byte(), Sim::new(), Arc::new(Zoned::new()));
        let max_regions = if flags & 1 != 0 { 2 + bytes.below(12) } else { u64::MAX };
        let max_bytes = if flags & 2 != 0 { (8 + bytes.below(64)) * PAGE_SIZE as u64 } else { u64::MAX };
        let config = Config {
            max_bytes: Some(max_bytes),
            max_regions: Some(max_regions),
            widen: flags & 4 == 0,
            attempts: 1 + u32::from(bytes.byte() % 3),
            policy: PolicyKind::ALL[bytes.below(3) as usize],
            single_use: if flags & 8 != 0 { Access::REMOTE_ATOMIC } else { Access::empty() },
            ..Config::default()
        };
        let host = OneThread { slots: flags & 16 != 0, now_ns: AtomicU64::new(0) };
        let cache = Cache::new(sim.clone(), monitor.clone(), Arc::new(host), config).expect("valid");
        let (plain, faults) = (flags & 4 == 0 && flags & 32 != 0, flags & 64 != 0);
        let (kept, requested) = (Vec::new(), BTreeSet::new());
        Self { sim, cache, monitor, kept, requested, plain, faults: faults && !plain, max_bytes, max_regions }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 32 {
            0..10 => self.acquire(bytes),
            10..13 => self.lookup(bytes),
            13..16 => self.put(bytes),
            16 => self.clone_one(bytes),
            17..22 => self.change(bytes),
            22 => self.report_for_nothing(bytes),
            23 => _ = self.cache.drive(),
            24 => self.flush(bytes),
            25 => self.shrink(bytes),
            26 => self.lose(),
            27 => self.plan_fault(bytes),
            28 => {
                self.monitor.refuses.store(self.faults && bytes.byte().is_multiple_of(4), Ordering::Relaxed)
            }
            29 => self.overflow(),
            _ => _ = self.cache.stats(),
        }
    }

    /// Mostly short and near each other.
    fn extent(bytes: &mut Bytes<'_>) -> PageRange {
        let (first, pages) = match bytes.below(48) {
            0 => (bytes.below(PAGES - 1600), 1 + bytes.below(1600)),
            1..10 => (120 + bytes.below(60), 1 + bytes.below(12)),
            _ => (bytes.below(90), 1 + bytes.below(12)),
        };
        range(first, pages)
    }

    fn access(&self, bytes: &mut Bytes<'_>) -> Access {
        let all = Access::from_bits_truncate(bytes.byte());
        if self.plain { all & (Access::LOCAL_WRITE | Access::RELAXED_ORDERING) } else { all }
    }

    fn acquire(&mut self, bytes: &mut Bytes<'_>) {
        let (wanted, access) = (Self::extent(bytes), self.access(bytes));
        let keep = bytes.byte().is_multiple_of(2) && !self.plain;
        let address = std::ptr::without_provenance(wanted.start());
        // SAFETY: the simulated device touches no memory.
        match unsafe { self.cache.acquire(address, wanted.len_bytes(), access) } {
            Ok(registration) => self.acquired(registration, wanted, access, keep),
            Err(error) => self.refused(&error, wanted),
        }
    }

    fn acquired(&mut self, got: Registration<Sim>, wanted: PageRange, access: Access, keep: bool) {
        self.requested.extend(wanted.first_page()..wanted.end_page());
        self.check_fresh(&got, wanted, access);
        if got.is_cached() {
            let address = std::ptr::without_provenance(wanted.start());
            let again = self.cache.lookup(address, wanted.len_bytes(), access);
            self.check_fresh(&again.expect("what is cached is found"), wanted, access);
        } else if !wanted.overlaps(range(UNCACHEABLE.start, 10)) {
            let told =
                self.monitor.refuses.load(Ordering::Relaxed) || access.intersects(Access::REMOTE_ATOMIC);
            let near = got.range() != wanted || self.requested.len() > 1;
            assert!(told || near, "uncached without a reason");
        }
        if keep {
            self.kept.push(Kept { registration: got, changed: BTreeSet::new(), reported: false });
        }
    }

    fn check_fresh(&self, got: &Registration<Sim>, wanted: PageRange, access: Access) {
        assert!(
            got.range().contains(wanted) && got.access().serves(access),
            "{got:?} for {wanted} {access:?}"
        );
        assert!(!got.is_stale());
        assert_eq!(self.sim.stale_pages(got.key(), got.range()), Ok(0), "{got:?} moves other bytes");
    }

    fn refused(&self, error: &AcquireError, wanted: PageRange) {
        let fits = wanted.len_bytes() as u64 <= self.max_bytes;
        match error {
            AcquireError::Budget { .. } => assert!(
                !fits || !self.kept.is_empty() || self.faults,
                "{wanted} fits, and nothing is held: {error}"
            ),
            AcquireError::Register(_) => assert!(self.faults, "{error}"),
            _ => panic!("{error}"),
        }
    }

    fn lookup(&mut self, bytes: &mut Bytes<'_>) {
        let (wanted, access) = (Self::extent(bytes), self.access(bytes));
        let address = std::ptr::without_provenance(wanted.start());
        if let Some(got) = self.cache.lookup(address, wanted.len_bytes(), access) {
            self.requested.extend(wanted.first_page()..wanted.end_page());
            self.check_fresh(&got, wanted, access);
            assert!(got.is_cached());
        }
    }

    fn put(&mut self, bytes: &mut Bytes<'_>) {
        if !self.kept.is_empty() {
            let at = bytes.below(256) as usize % self.kept.len();
            self.kept.swap_remove(at);
        }
    }

    fn clone_one(&mut self, bytes: &mut Bytes<'_>) {
        if let Some(kept) = self.kept.get(bytes.below(8) as usize) {
            let (registration, changed) = (kept.registration.clone(), kept.changed.clone());
            self.kept.push(Kept { registration, changed, reported: kept.reported });
        }
    }

    fn change(&mut self, bytes: &mut Bytes<'_>) {
        let (changed, notifier) = (Self::extent(bytes), self.cache.notifier());
        let how = bytes.byte() % 4;
        if how == 1 {
            notifier.begin();
        }
        self.sim.remap(changed);
        self.monitor.changed(changed);
        match how {
            0 => _ = self.cache.invalidate(changed),
            1 => {
                notifier.push(changed, EventKind::Remove);
                notifier.end();
            }
            _ => notifier.invalidate(changed, EventKind::Unmap),
        }
        for kept in &mut self.kept {
            let both = kept.registration.range().intersection(changed);
            kept.reported |= both.is_some();
            kept.changed.extend(both.into_iter().flat_map(|r| r.first_page()..r.end_page()));
        }
    }

    /// A change of pages that are found changed at lookup is not reported at all.
    fn report_for_nothing(&mut self, bytes: &mut Bytes<'_>) {
        if bytes.byte().is_multiple_of(2) {
            let unreported = range(130 + bytes.below(20), 1 + bytes.below(9));
            self.sim.remap(unreported);
            self.monitor.changed(unreported);
            for kept in &mut self.kept {
                let both = kept.registration.range().intersection(unreported);
                kept.reported |= both.is_some();
                kept.changed.extend(both.into_iter().flat_map(|r| r.first_page()..r.end_page()));
            }
            return;
        }
        let reported = Self::extent(bytes);
        self.cache.notifier().invalidate(reported, EventKind::Manual);
        for kept in &mut self.kept {
            kept.reported |= kept.registration.range().overlaps(reported);
        }
    }

    fn flush(&mut self, bytes: &mut Bytes<'_>) {
        let flushed = Self::extent(bytes);
        let held = self.kept.iter().any(|k| k.registration.range().overlaps(flushed));
        match self.cache.flush(flushed) {
            Ok(()) => {
                assert!(!held, "flushed what is held");
                assert!(
                    !self.sim.live().iter().any(|r| r.overlaps(flushed)),
                    "flushed, and still registered"
                );
            }
            Err(FlushError::Held { .. }) => assert!(held),
            Err(error) => assert!(self.faults, "{error}"),
        }
    }

    fn shrink(&self, bytes: &mut Bytes<'_>) {
        let most = bytes.below(64) * PAGE_SIZE as u64;
        let left = self.cache.shrink(most);
        assert!(left <= most || !self.kept.is_empty() || self.faults, "{left} of {most}");
    }

    fn lose(&mut self) {
        self.cache.notifier().lost();
        self.kept.iter_mut().for_each(|k| k.reported = true);
    }

    fn overflow(&mut self) {
        let notifier = self.cache.notifier();
        (0..300).for_each(|i| notifier.invalidate(range(PAGES + 2 * i, 1), EventKind::Remove));
        self.kept.iter_mut().for_each(|k| k.reported = true);
    }

    fn plan_fault(&self, bytes: &mut Bytes<'_>) {
        if self.faults {
            let call = [Call::Register, Call::Deregister, Call::Any][bytes.below(3) as usize];
            let faults = [Fault::Memlock, Fault::Memory, Fault::Busy, Fault::Unsupported, Fault::Io];
            let fault = faults[bytes.below(faults.len() as u64) as usize];
            self.sim.fail(call, 1 + bytes.below(4), 1 + bytes.below(4), fault);
        }
    }

    fn check(&self) {
        let books = self.sim.books();
        assert!(books.balanced(), "{books:?}");
        assert!(books.live_bytes_peak <= self.max_bytes && books.live_peak <= self.max_regions, "{books:?}");
        for kept in &self.kept {
            self.check_kept(kept);
        }
        let stats = self.cache.stats();
        assert_eq!((stats.regions_registered, stats.bytes_registered), (books.live, books.live_bytes));
        assert_eq!(stats.gets, stats.hits + stats.misses);
        if self.plain {
            self.cache.drive();
            let bound = 2 * (self.requested.len() * PAGE_SIZE) as u64;
            let live = self.sim.books().live_bytes;
            assert!(live <= bound, "{live} bytes registered, {bound} allowed");
        }
    }

    /// Held: usable, and stale in exactly the pages that changed.
    fn check_kept(&self, kept: &Kept) {
        let (key, all) = (kept.registration.key(), kept.registration.range());
        for page in all.first_page()..all.end_page() {
            let transfer = self.sim.transfer(key, page).expect("held");
            assert_eq!(transfer.is_stale(), kept.changed.contains(&page));
        }
        assert!(kept.reported || !kept.registration.is_stale(), "stale for no reason");
    }

    fn finish(mut self) {
        self.kept.clear();
        self.sim.heal();
        let _ = self.cache.clone().close(Duration::ZERO);
        for _ in (0..1_000_000).take_while(|_| self.sim.books().live > 0) {
            self.cache.drive();
        }
        self.cache.close(Duration::ZERO).expect("nothing is held");
        assert!(self.sim.books().closed(), "{:?}", self.sim.books());
        assert_eq!(self.monitor.open.load(Ordering::Relaxed), 0, "subscriptions left");
    }
}
