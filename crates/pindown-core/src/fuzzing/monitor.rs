//! A monitor and a host for the fuzzed cache.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::monitor::{Coverage, Delivery, Subscription};
use crate::{
    Access, Host, Mapping, Monitor, MonitorError, Notifier, PAGE_SIZE, PageRange, Reservation, Stamp,
    Validity,
};

/// Where the fuzzed pages lie: across a chunk's border.
pub(super) const BASE_PAGE: u64 = 0x10_0000 - 100;
/// Pages that are fuzzed.
pub(super) const PAGES: u64 = 3000;
/// Pages whose changes are not reported, but found at lookup.
pub(super) const CHECKED: std::ops::Range<u64> = 128..160;
/// Pages that cannot be covered.
pub(super) const UNCACHEABLE: std::ops::Range<u64> = 160..170;

/// `pages` of the fuzzed pages from `first`.
pub(super) fn range(first: u64, pages: u64) -> PageRange {
    PageRange::from_pages(BASE_PAGE + first, pages.max(1)).expect("in the address space")
}

fn touches(range: PageRange, zone: &std::ops::Range<u64>) -> bool {
    range.overlaps(self::range(zone.start, zone.end - zone.start))
}

/// Covers pages in three ways, and counts its subscriptions.
#[derive(Debug)]
pub(super) struct Zoned {
    /// One a page of `CHECKED`; moves with each change.
    versions: Vec<AtomicU64>,
    /// Subscriptions that have not ended.
    pub(super) open: AtomicI64,
    /// Whether subscribing fails now.
    pub(super) refuses: AtomicBool,
}

impl Zoned {
    pub(super) fn new() -> Self {
        let versions = CHECKED.map(|_| AtomicU64::new(1)).collect();
        Self { versions, open: AtomicI64::new(0), refuses: AtomicBool::new(false) }
    }

    fn checked_pages(&self, range: PageRange) -> impl Iterator<Item = &AtomicU64> {
        let zone = self::range(CHECKED.start, CHECKED.end - CHECKED.start);
        let both = zone.intersection(range);
        let at = move |page: u64| &self.versions[(page - zone.first_page()) as usize];
        both.into_iter().flat_map(|r| r.first_page()..r.end_page()).map(at)
    }

    /// The pages of `range` changed.
    pub(super) fn changed(&self, range: PageRange) {
        self.checked_pages(range).for_each(|v| _ = v.fetch_add(1, Ordering::Relaxed));
    }

    fn stamp(&self, range: PageRange) -> Stamp {
        Stamp([self.checked_pages(range).map(|v| v.load(Ordering::Relaxed)).sum(), 0, 0, 0])
    }
}

impl Monitor for Zoned {
    fn name(&self) -> &'static str {
        "zoned"
    }
    fn coverage(&self) -> Coverage {
        Coverage::default()
    }
    fn delivery(&self) -> Delivery {
        Delivery::BeforeReturn
    }
    fn start(&self, _: Notifier) -> Result<(), MonitorError> {
        Ok(())
    }
    fn subscribe(&self, range: PageRange, _: Access) -> Result<Subscription, MonitorError> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(MonitorError::Conflict { range });
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(if touches(range, &UNCACHEABLE) {
            Subscription::Uncacheable("fuzzed so")
        } else if touches(range, &CHECKED) {
            Subscription::Checked(self.stamp(range))
        } else {
            Subscription::Events
        })
    }
    fn unsubscribe(&self, _: PageRange) {
        let open = self.open.fetch_sub(1, Ordering::Relaxed);
        assert!(open > 0, "unsubscribed what was not subscribed");
    }
    fn validate(&self, range: PageRange, stamp: Stamp) -> Validity {
        if self.stamp(range) == stamp { Validity::Valid } else { Validity::Changed }
    }
    fn stop(&self) {}
}

/// One thread is its own fence; mappings end where the fuzzed pages do, and at page 64.
#[derive(Debug)]
pub(super) struct OneThread {
    pub(super) slots: bool,
    pub(super) now_ns: AtomicU64,
}

impl Host for OneThread {
    fn reserve(&self, _: usize) -> Option<Reservation> {
        None
    }
    unsafe fn release(&self, _: Reservation) {}
    fn has_asymmetric_fence(&self) -> bool {
        self.slots
    }
    fn asymmetric_fence(&self) {}
    fn mapping(&self, wanted: PageRange) -> Option<Mapping> {
        let halves = [range(0, 64), range(64, PAGES - 64)];
        let found = halves.into_iter().find(|m| m.contains(wanted))?;
        Some(Mapping { range: found, readable: true, writable: true })
    }
    fn now_ns(&self) -> u64 {
        self.now_ns.fetch_add(PAGE_SIZE as u64, Ordering::Relaxed)
    }
}
