//! [`Learnt`]: what a system that refuses teaches about the budget.
//!
//! RLIMIT_MEMLOCK, a cgroup and a device's tables are shared with others, who take of them after the
//! budget was set. So a refusal lowers the budget to what was registered at that moment: the cache then
//! evicts for itself, rather than asking in vain at each miss. Others also give back: the budget rises
//! again by an eighth a second. It only says when to evict; it never refuses a request by itself.

use super::Inner;
use super::config::Bounds;
use super::state::State;
use crate::{Limit, PAGE_SIZE, Provider, RegisterError, events};

const RAISE_EVERY_NS: u64 = 1_000_000_000;
/// After a refusal at next to nothing registered, this part of the bound is still tried.
const LEAST: u64 = 16;

/// Bounds below the configured ones, while they last.
#[derive(Debug, Default)]
pub(crate) struct Learnt {
    /// With the time from which on it rises.
    lowered: Option<(Bounds, u64)>,
}

impl Learnt {
    /// `limit` was hit with so much registered beside what was refused.
    fn refused(&mut self, limit: Limit, full: &Bounds, others: (u64, u64), now_ns: u64) -> Bounds {
        let mut bounds = self.lowered.map_or(*full, |(bounds, _)| bounds);
        let of_full = |n: u64| (n / LEAST).max(1);
        match limit {
            Limit::Slots => bounds.regions = bounds.regions.min(others.1.max(of_full(full.regions))),
            // What is all there is to know of an unlimited budget is what fits.
            _ if full.pages == u64::MAX / PAGE_SIZE as u64 => {
                bounds.pages = bounds.pages.min(others.0.max(1))
            }
            _ => bounds.pages = bounds.pages.min(others.0.max(of_full(full.pages))),
        }
        self.lowered = Some((bounds, now_ns));
        bounds
    }

    /// The bounds now.
    fn bounds(&mut self, full: &Bounds, now_ns: impl FnOnce() -> u64) -> Bounds {
        let Some((mut bounds, since_ns)) = self.lowered else { return *full };
        let seconds = now_ns().saturating_sub(since_ns) / RAISE_EVERY_NS;
        for _ in 0..seconds.min(600) {
            bounds.pages = (bounds.pages + bounds.pages / 8 + 1).min(full.pages);
            bounds.regions = (bounds.regions + bounds.regions / 8 + 1).min(full.regions);
        }
        let is_back = bounds.pages == full.pages && bounds.regions == full.regions;
        self.lowered = (!is_back).then_some((bounds, since_ns + seconds * RAISE_EVERY_NS));
        bounds
    }
}

impl<P: Provider> Inner<P> {
    /// The bounds at which to evict.
    pub(super) fn bounds_now(&self, state: &mut State<P>) -> Bounds {
        let bounds = state.learnt.bounds(&self.bounds, || self.host.now_ns());
        self.gauge_budget(bounds);
        bounds
    }

    /// The system has no room for `pages` more pages.
    pub(super) fn learn_refusal(&self, pages: u64, error: &RegisterError) {
        let limit = match error {
            RegisterError::Limit { limit, .. } => *limit,
            _ => Limit::Memory,
        };
        let mut state = self.state();
        let others = (state.charged_pages.saturating_sub(pages), state.charged_regions.saturating_sub(1));
        let bounds = state.learnt.refused(limit, &self.bounds, others, self.host.now_ns());
        drop(state);
        self.counters.budget_lowered.add(1);
        self.gauge_budget(bounds);
        events::budget_lowered(bounds.pages.saturating_mul(PAGE_SIZE as u64), bounds.regions);
    }

    pub(super) fn gauge_budget(&self, bounds: Bounds) {
        self.counters.budget_bytes.set(bounds.pages.saturating_mul(PAGE_SIZE as u64));
        self.counters.budget_regions.set(bounds.regions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Bounds = Bounds { pages: 1600, regions: 100, region_pages: u64::MAX };
    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_refusal_lowers_and_time_raises_again() {
        let mut learnt = Learnt::default();
        assert_eq!(learnt.bounds(&FULL, || 0).pages, 1600);
        learnt.refused(Limit::Memlock, &FULL, (800, 50), SECOND);
        assert_eq!(learnt.bounds(&FULL, || SECOND + 5).pages, 800);
        assert_eq!(learnt.bounds(&FULL, || 2 * SECOND).pages, 901);
        assert_eq!(learnt.bounds(&FULL, || 2 * SECOND + 1).pages, 901, "not twice for one second");
        assert_eq!(learnt.bounds(&FULL, || 60 * SECOND).pages, 1600);
        assert!(learnt.lowered.is_none());
    }

    #[test]
    fn each_limit_lowers_its_own_bound_and_never_to_nothing() {
        let mut learnt = Learnt::default();
        let bounds = learnt.refused(Limit::Slots, &FULL, (800, 50), 0);
        assert_eq!((bounds.pages, bounds.regions), (1600, 50));
        let bounds = learnt.refused(Limit::Memory, &FULL, (0, 0), 0);
        assert_eq!((bounds.pages, bounds.regions), (100, 50));
    }
}
