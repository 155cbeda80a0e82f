//! What a cache's owner does now and then: expiry of what is idle, and looking through what there is.

use super::{Cache, Inner};
use crate::hold::State as RegionState;
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
                let idle = region.state() == RegionState::Live && region.last_use().stamp() < mark;
                if idle && !region.is_counted() && !held.contains(&region.tag()) {
                    state.doom(&self.slab, index, RegionState::Evicted, &self.counters);
                    expired += 1;
                }
            }
            from = end;
            if from == state.all().end {
                break;
            }
        }
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
