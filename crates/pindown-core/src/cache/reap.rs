//! What nobody finds and nobody holds is deregistered.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::Inner;
use super::state::{Doomed, Failing, Leaving, State, span_of};
use crate::events;
use crate::hold::{self, Retire, State as RegionState};
use crate::provider::DeregisterFailed;
use crate::sync::{FenceAt, full_fence, yield_now};
use crate::{PageRange, Provider};

/// How often held stale regions are looked at again, and how long deregistrations are gathered
/// before one fence serves them all: half of the promised 10 ms.
const LOOK_AGAIN: Duration = Duration::from_millis(4);
const FIRST_RETRY_NS: u64 = 1_000_000;
const LAST_RETRY_NS: u64 = 1_000_000_000;

impl<P: Provider> Inner<P> {
    /// See [`Cache::drive`](crate::Cache::drive).
    pub(super) fn drive(&self) -> usize {
        if self.drained.is_forked() {
            return 0;
        }
        self.notifier.inbox().wake.take();
        drop(self.drained_state());
        if self.check_thread().is_err() {
            return 0;
        }
        self.reap() + self.retry_failing(self.host.now_ns())
    }

    /// The part of [`drive`](Self::drive) that cannot wait: huge pages stay taken while pinned.
    pub(super) fn drive_urgent(&self) -> usize {
        if self.drained.is_forked() || self.check_thread().is_err() {
            return 0;
        }
        let urgent = self.drained_state().urgent;
        if urgent { self.reap() } else { 0 }
    }

    pub(super) fn wait_for_work(&self, timeout: Duration) {
        if self.drained.is_forked() {
            // Before the lock. There will be no work, and a caller's loop must not spin.
            return std::thread::sleep(timeout.min(LOOK_AGAIN));
        }
        let busy = {
            let state = self.state();
            !state.doomed.is_empty() || !state.failing.is_empty()
        };
        // A word that the kernel moves wakes nobody.
        let polls = busy || self.generation.monitor().generation().is_some();
        self.notifier.inbox().wake.sleep(if polls { timeout.min(LOOK_AGAIN) } else { timeout });
    }

    pub(super) fn reap_or_yield(&self) {
        if self.reap() + self.retry_failing(self.host.now_ns()) == 0 {
            yield_now();
        }
    }

    /// Like [`reap`](Self::reap), and waits for what other threads are deregistering.
    pub(super) fn reap_all(&self) {
        self.reap();
        while self.state().reaping > 0 {
            yield_now();
        }
    }

    /// Deregisters doomed regions that nobody holds; returns how many.
    ///
    /// They are unlinked already. After the fence every thread has either made its hold visible
    /// to the scan, or will see the region unlinked and undo.
    pub(super) fn reap(&self) -> usize {
        let batch = self.take_doomed();
        if batch.is_empty() {
            return 0;
        }
        self.fence();
        let mut held = HashSet::new();
        hold::registry().scan(|tag| _ = held.insert(tag));
        let is_held =
            |d: &Doomed| self.slab.get(d.index).is_some_and(|r| held.contains(&r.tag()) || r.is_counted());
        let (keep, go): (Vec<_>, Vec<_>) = batch.iter().copied().partition(is_held);
        self.keep(&keep);
        let partings: Vec<_> = go.iter().map(|d| (d.index, self.deregister_region(d.index))).collect();
        self.settle(partings, batch.len() as u64)
    }

    fn take_doomed(&self) -> Vec<Doomed> {
        let mut state = self.state();
        let batch = std::mem::take(&mut state.doomed);
        state.urgent = false;
        state.reaping += batch.len() as u64;
        batch
    }

    fn fence(&self) {
        if self.uses_slots {
            self.host.asymmetric_fence();
        }
        full_fence(FenceAt::Retire);
    }

    fn keep(&self, keep: &[Doomed]) {
        let mut state = self.state();
        for doomed in keep {
            let stale = self.slab.get(doomed.index).is_some_and(|r| r.state() == RegionState::Stale);
            if stale && !doomed.held {
                self.counters.invalidated_held.add(1);
            }
            state.doomed.push(Doomed { held: true, ..*doomed });
        }
    }

    /// Gives an unheld, unlinked region's registration back.
    fn deregister_region(&self, index: u32) -> Parting<P> {
        let Some(region) = self.slab.get(index) else { return Parting::Lost };
        // SAFETY: the caller took the index out of `doomed`, where only unlinked regions are, and
        // since then passed the fence and found no hold.
        let Some(mr) = (unsafe { self.slab.take(index) }) else { return Parting::Lost };
        let (range, zoned, subscribed) = (region.range(), region.is_zoned(), region.is_subscribed());
        self.deregister(Leaving { mr, range, zoned, subscribed }, 1)
    }

    fn deregister(&self, leaving: Leaving<P>, tries: u32) -> Parting<P> {
        let Leaving { mr, range, zoned, subscribed } = leaving;
        // A panic may not take the worker with it, nor the books.
        let result = catch_unwind(AssertUnwindSafe(|| self.provider.deregister(mr)));
        if let Ok(Ok(())) = result {
            self.counters.deregistrations.add(1);
            if subscribed {
                self.generation.monitor().unsubscribe(range);
            }
            return Parting::Gone;
        }
        self.counters.deregister_failures.add(1);
        events::deregister_failed(self.provider.name(), range, tries);
        let Ok(Err(DeregisterFailed { mr, source: _ })) = result else { return Parting::Lost };
        let wait_ns = (FIRST_RETRY_NS << (tries - 1).min(10)).min(LAST_RETRY_NS);
        let not_before_ns = self.host.now_ns().saturating_add(wait_ns);
        Parting::Failing(Failing { leaving: Leaving { mr, range, zoned, subscribed }, tries, not_before_ns })
    }

    /// Books a reaped batch: records are free again, what failed stays charged.
    fn settle(&self, partings: Vec<(u32, Parting<P>)>, batch: u64) -> usize {
        let (mut state, mut done) = (self.state(), 0);
        for (index, parting) in partings {
            let Some(region) = self.slab.get(index) else { continue };
            let (range, zoned) = (region.range(), region.is_zoned());
            state.free(&self.slab, index);
            done += usize::from(self.part(&mut state, parting, range, zoned));
        }
        state.reaping -= batch;
        self.gauge(&state);
        if state.watches.has_ended() {
            self.notifier.inbox().wake.wake();
        }
        done
    }

    /// Books one deregistration; returns whether it is gone.
    fn part(&self, state: &mut State<P>, parting: Parting<P>, range: PageRange, zoned: bool) -> bool {
        let gone = matches!(parting, Parting::Gone);
        match parting {
            Parting::Failing(failing) => {
                state.failing.push(failing);
                self.notifier.inbox().wake.wake(); // the worker may be asleep for long
                return false;
            }
            Parting::Gone => state.discharge(range.pages(), zoned),
            Parting::Lost => {}
        }
        self.counters.regions_registered.sub_locked(1);
        self.counters.bytes_registered.sub_locked(range.len_bytes() as u64);
        gone
    }

    fn gauge(&self, state: &State<P>) {
        let held = state.doomed.iter().filter(|d| d.held).count() as u64;
        self.counters.regions_draining.set(held);
        let pending = state.doomed.len() as u64 - held + state.failing.len() as u64;
        self.counters.regions_pending.set(pending);
    }

    /// Tries failed deregistrations again, those that are due by `now_ns`.
    pub(super) fn retry_failing(&self, now_ns: u64) -> usize {
        let due: Vec<_> = {
            let mut state = self.state();
            let all = std::mem::take(&mut state.failing);
            let (due, later) = all.into_iter().partition(|f| f.not_before_ns <= now_ns);
            state.failing = later;
            state.reaping += Vec::len(&due) as u64;
            due
        };
        due.into_iter().map(|f| usize::from(self.retry(f))).sum()
    }

    fn retry(&self, failing: Failing<P>) -> bool {
        let (range, zoned) = (failing.leaving.range, failing.leaving.zoned);
        let parting = self.deregister(failing.leaving, failing.tries + 1);
        let mut state = self.state();
        state.reaping -= 1;
        let gone = self.part(&mut state, parting, range, zoned);
        self.gauge(&state);
        gone
    }

    /// Gives back a registration that never became a region.
    pub(super) fn discard(&self, leaving: Leaving<P>) {
        let (range, zoned) = (leaving.range, leaving.zoned);
        {
            let _state = self.state();
            self.counters.regions_registered.add_locked(1);
            self.counters.bytes_registered.add_locked(range.len_bytes() as u64);
        }
        let parting = self.deregister(leaving, 1);
        self.part(&mut self.state(), parting, range, zoned);
    }

    /// Unlinks a single-use region that nobody holds; whether the caller shall deregister it.
    fn retire_single(&self, index: u32) -> bool {
        let mut state = self.state();
        let Some(region) = self.slab.get(index).filter(|_| state.single.remove(&index)) else { return false };
        state.map.remove(span_of(index, region));
        let here = self.check_thread().is_ok();
        if here {
            state.reaping += 1;
        } else {
            state.doomed.push(Doomed { index, held: false });
        }
        here
    }
}

impl<P: Provider> Retire for Inner<P> {
    /// The last put of a single-use registration deregisters it, if this thread may; else it is
    /// left to the owner's [`drive`](crate::Cache::drive).
    fn retire(&self, index: u32) {
        if self.drained.is_forked() || !self.retire_single(index) {
            return;
        }
        let parting = self.deregister_region(index);
        self.settle(vec![(index, parting)], 1);
    }
}

/// What came of a deregistration.
enum Parting<P: Provider> {
    Gone,
    /// To be tried again; still charged.
    Failing(Failing<P>),
    /// The provider panicked: the device may still have it, so it stays charged for ever.
    Lost,
}
