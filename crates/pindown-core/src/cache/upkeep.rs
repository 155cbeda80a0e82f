//! What a cache's owner does now and then: expiry of what is idle, and looking through what there is.

use super::state::State;
use super::{Cache, Inner};
use crate::hold::{Region, State as RegionState};
use crate::{PageRange, Provider};

/// Regions that are looked at before the lock is given to others for a moment.
const CHUNK: u32 = 2048;

impl<P: Provider> Cache<P> {
    /// A point in time, for [`expire_unused_since`](Self::expire_unused_since): the next use of each
    /// registration after it is noted, whatever else.
    pub fn mark(&self) -> u64 {
        self.0.mark()
    }

    /// Gives up what was not used since `mark` and is not held. Returns how many registrations that
    /// were; they are deregistered before this returns, where this thread may.
    pub fn expire_unused_since(&self, mark: u64) -> usize {
        self.0.expire(mark)
    }

    /// Gives up what is as old as [`max_age`](crate::Config::max_age) says and not held. Returns how many
    /// registrations that were.
    pub fn expire_old(&self) -> usize {
        self.0.expire_old()
    }

    /// The ranges of up to `most` registrations that lookups can find, beginning with number `from`,
    /// and with which number to go on; `None` after the last.
    pub fn ranges_from(&self, from: u32, most: usize) -> (Vec<PageRange>, Option<u32>) {
        self.0.ranges_from(from, most)
    }
}

impl<P: Provider> Inner<P> {
    fn mark(&self) -> u64 {
        if self.drained.is_forked() {
            return 0;
        }
        let _state = self.state(); // time is set under the lock alone
        self.clock.refresh_all();
        self.clock.now() + 1
    }

    fn expire(&self, mark: u64) -> usize {
        self.expire_if(|_, _, region| region.last_use().stamp() < mark)
    }

    pub(super) fn note_birth(&self, state: &mut State<P>, index: u32) {
        if self.config.max_age.is_some() {
            let at = index as usize;
            state.born_ns.resize(state.born_ns.len().max(at + 1), 0);
            state.born_ns[at] = self.host.now_ns();
        }
    }

    fn expire_old(&self) -> usize {
        let Some(age) = self.config.max_age else { return 0 };
        let now_ns = self.host.now_ns();
        let Some(latest_ns) = now_ns.checked_sub(age.as_nanos().min(u128::from(u64::MAX)) as u64) else {
            return 0;
        };
        self.expire_if(|state, index, _| {
            state.born_ns.get(index as usize).is_some_and(|born| *born <= latest_ns)
        })
    }

    /// Gives up live regions that are due and not held.
    fn expire_if(&self, is_due: impl Fn(&State<P>, u32, &Region<P>) -> bool) -> usize {
        if self.drained.is_forked() {
            return 0;
        }
        let (mut from, mut expired) = (0, 0);
        loop {
            let mut state = self.drained_state();
            let end = state.all().end.min(from + CHUNK);
            let held = self.held_hint();
            for index in from..end {
                let Some(region) = self.slab.get(index) else { continue };
                let due = region.state() == RegionState::Live && is_due(&state, index, region);
                if due && !region.is_counted() && !held.contains(&region.tag()) {
                    state.doom(&self.slab, index, RegionState::Evicted, &self.counters);
                    expired += 1;
                }
            }
            from = end;
            if from == state.all().end {
                break;
            }
        }
        self.counters.expired.add(expired as u64);
        if expired > 0 && self.check_thread().is_ok() {
            self.reap();
        }
        expired
    }

    fn ranges_from(&self, from: u32, most: usize) -> (Vec<PageRange>, Option<u32>) {
        let mut ranges = Vec::new();
        if self.drained.is_forked() {
            return (ranges, None);
        }
        let state = self.drained_state();
        let end = state.all().end;
        for index in from..end.min(from.saturating_add(CHUNK)) {
            if ranges.len() == most {
                return (ranges, Some(index));
            }
            let region = self.slab.get(index).filter(|r| r.state() == RegionState::Live);
            ranges.extend(region.map(|r| r.range()));
        }
        let next = from.saturating_add(CHUNK);
        (ranges, (next < end).then_some(next))
    }
}
