//! Flush and close.

use std::time::Duration;

use super::Inner;
use super::state::State;
use crate::hold::State as RegionState;
use crate::{CloseError, FlushError, PAGE_SIZE, PageRange, Provider};

impl<P: Provider> Inner<P> {
    pub(super) fn flush(&self, range: PageRange) -> Result<(), FlushError> {
        if self.drained.is_forked() {
            return Err(FlushError::Forked);
        }
        self.check_thread().map_err(|_| FlushError::WrongThread)?;
        loop {
            self.wait_for_flights(range);
            {
                let mut state = self.drained_state();
                for index in state.overlapping(range) {
                    if self.overlaps(index, range) {
                        state.doom(&self.slab, index, RegionState::Evicted, &self.counters);
                    }
                }
            }
            self.reap();
            self.retry_failing(self.host.now_ns());
            match self.flushed(range) {
                Some(result) => return result,
                None => crate::sync::yield_now(), // another thread is deregistering
            }
        }
    }

    /// Registrations in the making that began before the flush.
    fn wait_for_flights(&self, range: PageRange) {
        let flights: Vec<_> = {
            let state = self.state();
            state.flights.iter().filter(|f| f.range.overlaps(range)).cloned().collect()
        };
        flights.iter().for_each(|f| {
            f.wait();
        });
    }

    fn flushed(&self, range: PageRange) -> Option<Result<(), FlushError>> {
        let state = self.state();
        let held = self.held_in(&state, range);
        if !held.is_empty() {
            return Some(Err(FlushError::Held { held }));
        }
        let failing = state.failing.iter().filter(|f| f.leaving.range.overlaps(range)).count();
        if failing > 0 {
            return Some(Err(FlushError::Failing { failing }));
        }
        let unheld = state.doomed.iter().any(|d| !d.held && self.overlaps(d.index, range));
        let busy = unheld || state.reaping > 0 || state.flights.iter().any(|f| f.range.overlaps(range));
        (!busy).then_some(Ok(()))
    }

    fn held_in(&self, state: &State<P>, range: PageRange) -> Vec<PageRange> {
        let doomed = state.doomed.iter().filter(|d| d.held).map(|d| d.index);
        let indices = doomed.chain(state.single.iter().copied());
        let ranges = indices.filter_map(|i| self.slab.get(i)).map(|r| r.range());
        ranges.filter(|r| r.overlaps(range)).collect()
    }

    fn overlaps(&self, index: u32, range: PageRange) -> bool {
        self.slab.get(index).is_some_and(|r| r.range().overlaps(range))
    }

    pub(super) fn close(&self, timeout: Duration) -> Result<(), CloseError> {
        if self.drained.is_forked() {
            return Err(CloseError::Forked);
        }
        self.doom_all();
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = self.host.now_ns().saturating_add(timeout_ns);
        loop {
            self.reap();
            self.retry_failing(self.host.now_ns());
            let left = self.left();
            if left.0 == 0 {
                return Ok(());
            }
            if self.host.now_ns() >= deadline_ns {
                return Err(CloseError::Left { waited: timeout, regions: left.0, bytes: left.1 });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn doom_all(&self) {
        if self.drained.is_forked() {
            return;
        }
        let mut state = self.drained_state();
        state.closed = true;
        for index in state.all() {
            state.doom(&self.slab, index, RegionState::Evicted, &self.counters);
        }
    }

    fn left(&self) -> (u64, u64) {
        let state = self.state();
        (state.charged_regions, state.charged_pages * PAGE_SIZE as u64)
    }
}

impl<P: Provider> Drop for Inner<P> {
    /// Deregisters what is not held. What is held stays registered, and its record in memory: a
    /// hold does not keep the cache, so the slab is left behind for it. (With `pindown`'s worker
    /// this does not happen: the worker keeps the cache until the last put.)
    fn drop(&mut self) {
        if self.drained.is_forked() {
            // The parent's registrations, and locks that nobody may be left to release.
            std::mem::forget(self.slab.clone());
            return;
        }
        self.generation.monitor().stop();
        self.doom_all();
        if self.check_thread().is_ok() {
            self.reap();
            self.retry_failing(u64::MAX);
        }
        if self.left().0 > 0 {
            std::mem::forget(self.slab.clone());
        }
        crate::hold::forget_hits(self.id);
    }
}
