//! Budget and eviction.

use std::collections::HashSet;

use super::Inner;
use super::state::State;
use crate::eviction::{Shortage, UseWord, Uses};
use crate::hold::{self, Slab, State as RegionState};
use crate::{AcquireError, PAGE_SIZE, PageRange, Provider, events};

/// What [`Inner::make_room`] says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Go ahead.
    Enough,
    /// Victims were doomed, or others are: deregister them, without the lock, and ask again.
    Reap,
    /// Nothing that could go is left.
    None,
}

/// The policy's view of the regions.
struct Seen<'a, P: Provider> {
    slab: &'a Slab<P>,
    /// Tags of regions in slots.
    held: HashSet<u64>,
    now: u64,
    short_of: Shortage,
}

impl<P: Provider> Uses for Seen<'_, P> {
    fn word(&self, region: u32) -> UseWord {
        self.slab.get(region).map_or(UseWord::default(), |r| r.last_use())
    }
    fn held(&self, region: u32) -> bool {
        self.slab.get(region).is_none_or(|r| self.held.contains(&r.tag()) || r.is_counted())
    }
    fn now(&self) -> u64 {
        self.now
    }
    fn short_of(&self) -> Shortage {
        self.short_of
    }
}

impl<P: Provider> Inner<P> {
    /// Tags of regions that seem to be held. Without a fence this may miss a hold that is just being
    /// taken; so it chooses victims, and never decides a deregistration.
    pub(super) fn held_hint(&self) -> HashSet<u64> {
        let mut held = HashSet::new();
        hold::registry().scan(|tag| _ = held.insert(tag));
        held
    }

    fn seen(&self) -> Seen<'_, P> {
        let short_of = Shortage::Bytes;
        Seen { slab: &self.slab, held: self.held_hint(), now: self.clock.now(), short_of }
    }

    /// Makes room for one registration of `pages` pages.
    pub(super) fn make_room(&self, state: &mut State<P>, pages: u64) -> Room {
        let bounds = self.bounds_now(state);
        if !state.is_over(&bounds, pages) {
            return Room::Enough;
        }
        if pages > self.bounds.pages || self.bounds.regions == 0 {
            return Room::None; // nothing is given up for what cannot fit anyway
        }
        let most_pages = bounds.pages.saturating_sub(pages);
        let most_regions = bounds.regions.saturating_sub(1);
        let evicted = self.evict_down_to(state, most_pages, most_regions);
        if evicted || state.reaping > 0 || state.doomed.iter().any(|d| !d.held) {
            Room::Reap
        } else if !state.is_over(&self.bounds, pages) {
            Room::Enough // what was learnt may be out of date: the system has the last word
        } else if self.has_due_retry(state) {
            Room::Reap
        } else {
            Room::None
        }
    }

    /// A deregistration failed, and it is time to try again.
    fn has_due_retry(&self, state: &State<P>) -> bool {
        !state.failing.is_empty() && {
            let now_ns = self.host.now_ns();
            state.failing.iter().any(|f| f.not_before_ns <= now_ns)
        }
    }

    /// Dooms victims until, once they are deregistered, at most that much is left.
    fn evict_down_to(&self, state: &mut State<P>, most_pages: u64, most_regions: u64) -> bool {
        let mut seen = self.seen();
        // What was held when it was last looked at may have been put.
        state.doomed.iter_mut().filter(|d| d.held).for_each(|d| d.held = seen.held(d.index));
        let (going_pages, going_regions) = self.going(state);
        let mut pages = state.charged_pages.saturating_sub(going_pages);
        let mut regions = state.charged_regions.saturating_sub(going_regions);
        if pages <= most_pages && regions <= most_regions {
            return false;
        }
        let mut evicted = false;
        self.clock.set_capacity(regions);
        while pages > most_pages || regions > most_regions {
            seen.short_of = if regions > most_regions { Shortage::Regions } else { Shortage::Bytes };
            let Some(victim) = state.policy.victim(&seen) else { break };
            let region = self.slab.get(victim);
            pages = pages.saturating_sub(region.map_or(0, |r| r.pages()));
            region.into_iter().for_each(|r| events::evicted(r.range()));
            regions = regions.saturating_sub(1);
            state.doom(&self.slab, victim, RegionState::Evicted, &self.counters);
            self.counters.evictions.add(1);
            evicted = true;
        }
        self.clock.set_sampling(state.policy.sampling_shift());
        evicted
    }

    /// What will be gone after the next reap, as far as is known.
    fn going(&self, state: &State<P>) -> (u64, u64) {
        let pages = |index| self.slab.get(index).map_or(0, |r| r.pages());
        let unheld = state.doomed.iter().filter(|d| !d.held);
        unheld.fold((0, 0), |(p, n), d| (p + pages(d.index), n + 1))
    }

    pub(super) fn budget_error(&self, state: &State<P>, range: PageRange) -> AcquireError {
        let bytes = |pages: u64| pages.saturating_mul(PAGE_SIZE as u64);
        AcquireError::Budget {
            needed_bytes: range.len_bytes() as u64,
            charged_bytes: bytes(state.charged_pages),
            max_bytes: bytes(self.bounds.pages),
            charged_regions: state.charged_regions,
            max_regions: self.bounds.regions,
        }
    }

    /// After the system refused: gives up at least `pages` pages of what is not held.
    pub(super) fn evict_for(&self, pages: u64) -> bool {
        let evicted = {
            let mut state = self.drained_state();
            let target = state.charged_pages.saturating_sub(pages.max(1) * 2);
            let waiting = state.doomed.iter().any(|d| !d.held);
            self.evict_down_to(&mut state, target, u64::MAX) || waiting
        };
        if evicted {
            self.reap_all();
        }
        evicted
    }

    pub(super) fn shrink(&self, max_bytes: u64) -> u64 {
        if self.drained.is_forked() {
            return 0;
        }
        {
            let mut state = self.drained_state();
            self.evict_down_to(&mut state, max_bytes / PAGE_SIZE as u64, u64::MAX);
        }
        self.reap();
        self.state().charged_pages * PAGE_SIZE as u64
    }
}
