//! What a miss registers: the request's pages, or more beside a neighbour.

use super::Inner;
use super::state::State;
use super::zones::widened;
use crate::hold::State as RegionState;
use crate::{Access, Mapping, PageRange, Provider};

/// What to register for a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) range: PageRange,
    pub(super) zoned: bool,
}

/// What [`Inner::extent`] says.
pub(super) enum Widening {
    Register(Extent),
    /// Neighbours exist: ask the host for the request's mapping, without the lock, and call again.
    AskMapping,
    /// Regions were dropped to keep the bound: deregister them first, and call again.
    Reap,
}

struct Neighbour {
    index: u32,
    range: PageRange,
}

impl<P: Provider> Inner<P> {
    /// Plans a registration. `mapping`: `None` not asked yet, `Some(None)` asked and not one mapping.
    pub(super) fn extent(
        &self,
        state: &mut State<P>,
        request: PageRange,
        access: Access,
        mapping: Option<Option<Mapping>>,
    ) -> Widening {
        let exact = Widening::Register(Extent { range: request, zoned: false });
        if !self.may_widen(access) {
            return exact;
        }
        let neighbours = self.neighbours(state, request);
        let in_zone = state.zones.is_requested_near(request);
        if neighbours.is_empty() && !in_zone {
            return exact;
        }
        let Some(mapping) = mapping else { return Widening::AskMapping };
        self.enter_zone(state, &neighbours, request);
        if state.zones.room() < request.pages() && self.supersede(state, &neighbours, request) {
            return Widening::Reap;
        }
        let range = self.choose(state, request, access, mapping, &neighbours);
        Widening::Register(Extent { range, zoned: true })
    }

    pub(super) fn may_widen(&self, access: Access) -> bool {
        self.config.widen && self.caps.may_widen && !access.is_remote()
    }

    /// Live regions that overlap the request or touch it.
    fn neighbours(&self, state: &State<P>, request: PageRange) -> Vec<Neighbour> {
        let first = request.first_page().saturating_sub(1);
        let around = PageRange::from_pages(first, request.end_page() + 1 - first).unwrap_or(request);
        let live = |index: u32| {
            let region = self.slab.get(index).filter(|r| r.state() == RegionState::Live)?;
            region.range().touches(request).then(|| Neighbour { index, range: region.range() })
        };
        state.overlapping(around).into_iter().filter_map(live).collect()
    }

    fn enter_zone(&self, state: &mut State<P>, neighbours: &[Neighbour], request: PageRange) {
        for neighbour in neighbours {
            let Some(region) = self.slab.get(neighbour.index).filter(|r| !r.is_zoned()) else { continue };
            region.set_zoned();
            state.zones.request(neighbour.range);
            state.zones.register(neighbour.range.pages());
        }
        state.zones.request(request);
    }

    /// Drops overlapped regions that nobody holds until the request fits the bound. Returns whether
    /// any was.
    fn supersede(&self, state: &mut State<P>, neighbours: &[Neighbour], request: PageRange) -> bool {
        let mut room = state.zones.room();
        let held = self.held_hint();
        let mut dropped = false;
        for neighbour in neighbours.iter().filter(|n| n.range.overlaps(request)) {
            let region = self.slab.get(neighbour.index);
            let is_held = region.is_none_or(|r| r.is_counted() || held.contains(&r.tag()));
            if room >= request.pages() || is_held {
                continue;
            }
            state.doom(&self.slab, neighbour.index, RegionState::Evicted, &self.counters);
            self.counters.superseded.add(1);
            room += neighbour.range.pages();
            dropped = true;
        }
        dropped
    }

    /// Doubles the neighbour's size, inside the mapping, the bound and the space up to the next region.
    fn choose(
        &self,
        state: &State<P>,
        request: PageRange,
        access: Access,
        mapping: Option<Mapping>,
        neighbours: &[Neighbour],
    ) -> PageRange {
        let Some(mapping) = mapping.filter(|m| m.range.contains(request)) else { return request };
        if (access.is_write() && !mapping.writable) || !mapping.readable {
            return request;
        }
        let Some(largest) = neighbours.iter().map(|n| n.range.pages()).max() else { return request };
        let forward = neighbours.iter().any(|n| n.range.start() < request.start());
        let most = (self.config.widen_max_bytes / crate::PAGE_SIZE as u64)
            .min(self.bounds.region_pages)
            .min(self.bounds.pages.saturating_sub(state.charged_pages));
        let pages = (2 * largest).min(most).min(state.zones.room()).max(request.pages());
        let wide = widened(request, pages, mapping.range, forward);
        self.clip_at_next(state, request, wide, forward)
    }

    /// Does not widen over what is registered already.
    fn clip_at_next(
        &self,
        state: &State<P>,
        request: PageRange,
        wide: PageRange,
        forward: bool,
    ) -> PageRange {
        let (mut start, mut end) = (wide.start(), wide.end());
        for index in state.overlapping(wide) {
            let Some(other) = self.slab.get(index).map(|r| r.range()) else { continue };
            if forward && other.start() >= request.end() {
                end = end.min(other.start());
            } else if !forward && other.end() <= request.start() {
                start = start.max(other.end());
            }
        }
        PageRange::new(start, end).unwrap_or(request)
    }
}
