//! [`State`]: what the cache's lock protects.

use std::collections::{HashMap, HashSet};

use super::config::Bounds;
use super::flight::Flight;
use super::known::Known;
use super::learnt::Learnt;
use super::watch::{Ended, Watches};
use super::zones::Zones;
use crate::access::SERVES;
use crate::events;
use crate::eviction::{CostModel, EvictionPolicy, Inserted, Removal};
use crate::hold::{NewRegion, Region, Slab, State as RegionState};
use crate::interval_map::{FAST, IntervalMap, Span};
use crate::monitor::Stamp;
use crate::stats::Counters;
use crate::sync::Arc;
use crate::{PageRange, Provider};

/// Under the cache's lock. Lock order: this, then the thread registry's.
pub(crate) struct State<P: Provider> {
    pub(crate) map: IntervalMap,
    pub(crate) flights: Vec<Arc<Flight>>,
    pub(crate) policy: Box<dyn EvictionPolicy>,
    costs: CostModel,
    pub(crate) known: Known,
    pub(crate) learnt: Learnt,
    /// By region: when it was registered, in nanoseconds; empty unless registrations age.
    pub(crate) born_ns: Vec<u64>,
    pub(crate) zones: Zones,
    /// Unlinked regions, to be deregistered once nobody holds them.
    pub(crate) doomed: Vec<Doomed>,
    /// Registrations whose deregistration failed.
    pub(crate) failing: Vec<Failing<P>>,
    /// Registrations that some thread is deregistering right now.
    pub(crate) reaping: u64,
    pub(crate) single: HashSet<u32>,
    /// Of regions that each lookup must check: what the monitor compares.
    pub(crate) stamps: HashMap<u32, Stamp>,
    pub(crate) closed: bool,
    /// A doomed region's pages are to go back without delay.
    pub(crate) urgent: bool,
    pub(crate) watches: Watches,
    /// Registered or being registered.
    pub(crate) charged_pages: u64,
    pub(crate) charged_regions: u64,
    free: Vec<u32>,
    next: u32,
    pub(crate) slow_requests: u64,
    /// What the policy is told of hits; kept for its room.
    pub(crate) reused: Vec<u64>,
}

/// A region that nobody can find any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doomed {
    pub(crate) index: u32,
    /// Somebody held it when we last looked.
    pub(crate) held: bool,
}

/// A registration on its way out.
#[derive(Debug)]
pub(crate) struct Leaving<P: Provider> {
    pub(crate) mr: P::Mr,
    pub(crate) range: PageRange,
    pub(crate) zoned: bool,
    /// The monitor is to be told.
    pub(crate) subscribed: bool,
}

/// A registration that the provider would not let go.
#[derive(Debug)]
pub(crate) struct Failing<P: Provider> {
    pub(crate) leaving: Leaving<P>,
    pub(crate) tries: u32,
    pub(crate) not_before_ns: u64,
}

impl<P: Provider> State<P> {
    pub(crate) fn new(map: IntervalMap, policy: Box<dyn EvictionPolicy>) -> Self {
        Self {
            map,
            flights: Vec::new(),
            policy,
            costs: CostModel::default(),
            known: Known::default(),
            learnt: Learnt::default(),
            born_ns: Vec::new(),
            zones: Zones::default(),
            doomed: Vec::new(),
            failing: Vec::new(),
            reaping: 0,
            single: HashSet::new(),
            stamps: HashMap::new(),
            closed: false,
            urgent: false,
            watches: Watches::default(),
            charged_pages: 0,
            charged_regions: 0,
            free: Vec::new(),
            next: 0,
            slow_requests: 0,
            reused: Vec::new(),
        }
    }

    /// Fills a free record and makes lookups find it, if `new.state` is live.
    pub(crate) fn insert<'s>(
        &mut self,
        slab: &'s Slab<P>,
        new: NewRegion<P>,
        requested: PageRange,
        cost_ns: u64,
    ) -> (u32, &'s Region<P>) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let (now, live) = (new.now, new.state == RegionState::Live);
        if let Some(stamp) = new.stamp.filter(|_| live) {
            self.stamps.insert(index, stamp);
        }
        let region = slab.fill(index, new);
        let span = span_of(index, region);
        if live {
            self.map.insert(span, requested);
            self.hide_displaced(slab);
            let (range, pages) = (span.range, span.range.pages());
            let is_warm = self.known.registered(range);
            let cost_ns = self.costs.learn(pages, cost_ns, is_warm);
            self.policy.inserted(Inserted { region: index, pages, cost_ns, id: range.first_page() }, now);
        } else {
            self.map.insert_hidden(span);
            self.single.insert(index);
        }
        (index, region)
    }

    /// Regions that lost entries to a newer one stay findable.
    pub(crate) fn hide_displaced(&mut self, slab: &Slab<P>) {
        for index in self.map.take_displaced() {
            if let Some(region) = slab.get(index).filter(|r| r.state() == RegionState::Live) {
                self.map.hide(span_of(index, region));
            }
        }
    }

    /// Makes a live region unfindable, and stale if its range changed. It is deregistered once it
    /// is not held.
    pub(crate) fn doom(&mut self, slab: &Slab<P>, index: u32, why: RegionState, counters: &Counters) {
        let Some(region) = slab.get(index) else { return };
        match region.state() {
            RegionState::Live => {}
            RegionState::Single => {
                // Deregistered by its holder's put; only told.
                if why == RegionState::Stale {
                    region.set_state(why);
                    self.watches.end(index, Ended::Stale);
                }
                return;
            }
            _ => return,
        }
        // Dead before unlinked: a holder that raced with this sees `is_stale`.
        region.set_state(why);
        if why == RegionState::Stale {
            self.watches.end(index, Ended::Stale);
            self.known.forget(region.range());
            events::stale(region.range());
        }
        self.map.remove(span_of(index, region));
        let removal = if why == RegionState::Evicted { Removal::Evicted } else { Removal::Invalidated };
        self.policy.removed(index, region.range().first_page(), region.last_use(), removal);
        self.doomed.push(Doomed { index, held: false });
        self.urgent |= region.is_at_once();
        counters.regions_live.sub_locked(1);
        counters.bytes_live.sub_locked(region.range().len_bytes() as u64);
    }

    /// The indices of regions that overlap `range`, each once.
    pub(crate) fn overlapping(&self, range: PageRange) -> Vec<u32> {
        let mut found = Vec::new();
        self.map.overlapping(range, |index| found.push(index));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// All regions that lookups or holders know.
    pub(crate) fn all(&self) -> std::ops::Range<u32> {
        0..self.next
    }

    pub(crate) fn free(&mut self, slab: &Slab<P>, index: u32) {
        if let Some(region) = slab.get(index) {
            region.set_state(RegionState::Free);
        }
        self.stamps.remove(&index);
        self.watches.end(index, Ended::Deregistered);
        self.free.push(index);
    }

    #[cfg(test)]
    pub(crate) fn expected_cost_ns(&self, pages: u64) -> u64 {
        self.costs.expected_ns(pages)
    }

    pub(crate) fn is_over(&self, bounds: &Bounds, more_pages: u64) -> bool {
        self.charged_pages + more_pages > bounds.pages || self.charged_regions + 1 > bounds.regions
    }

    pub(crate) fn charge(&mut self, pages: u64, zoned: bool) {
        self.charged_pages += pages;
        self.charged_regions += 1;
        if zoned {
            self.zones.register(pages);
        }
    }

    pub(crate) fn discharge(&mut self, pages: u64, zoned: bool) {
        self.charged_pages -= pages;
        self.charged_regions -= 1;
        if zoned {
            self.zones.deregister(pages);
        }
    }
}

/// A region as the map sees it.
pub(crate) fn span_of<P: Provider>(index: u32, region: &Region<P>) -> Span {
    let class = match region.state() {
        RegionState::Single => 0,
        _ if region.is_checked() => region.access().class(),
        _ => region.access().class() | FAST,
    };
    debug_assert!(region.state() == RegionState::Single || class & SERVES != 0);
    Span { index, range: region.range(), class }
}
