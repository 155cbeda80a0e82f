//! What nobody finds and nobody holds is deregistered.

use std::collections::HashSet;
use std::time::Duration;

use super::Inner;
use super::state::{Doomed, Failing, State, span_of};
use super::widening::Extent;
use crate::hold;
use crate::provider::DeregisterFailed;
use crate::sync::{Ordering, fence};
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
        self.reap() + self.retry_failing()
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
        let busy = {
            let state = self.state();
            !state.doomed.is_empty() || !state.failing.is_empty()
        };
        // A word that the kernel moves wakes nobody.
        let polls = busy || self.generation.monitor().generation().is_some();
        self.notifier.inbox().wake.sleep(if polls { timeout.min(LOOK_AGAIN) } else { timeout });
    }

    pub(super) fn reap_or_yield(&self) {
        if self.reap() == 0 {
            std::thread::yield_now();
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
        hold::registry().scan(self.id, |index| {
            held.insert(index);
        });
        let is_held =
            |d: &Doomed| held.contains(&d.index) || self.slab.get(d.index).is_some_and(|r| r.is_counted());
        let (keep, go): (Vec<_>, Vec<_>) = batch.iter().copied().partition(is_held);
        self.keep(&keep);
        let failed: Vec<_> = go.iter().filter_map(|d| self.deregister_region(d.index)).collect();
        self.settle(&go, failed, batch.len() as u64)
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
        fence(Ordering::SeqCst);
    }

    fn keep(&self, keep: &[Doomed]) {
        let mut state = self.state();
        for doomed in keep {
            if !doomed.held {
                self.counters.invalidated_held.add(1);
            }
            state.doomed.push(Doomed { held: true, ..*doomed });
        }
    }

    /// Gives an unheld, unlinked region's registration back.
    fn deregister_region(&self, index: u32) -> Option<Failing<P>> {
        let region = self.slab.get(index)?;
        // SAFETY: the caller took the index out of `doomed`, where only unlinked regions are, and
        // since then passed the fence and found no hold.
        let mr = unsafe { self.slab.take(index) }?;
        let (range, zoned) = (region.range(), region.is_zoned());
        self.deregister(mr, range, zoned, 1)
    }

    /// `None` when it is gone.
    fn deregister(&self, mr: P::Mr, range: PageRange, zoned: bool, tries: u32) -> Option<Failing<P>> {
        match self.provider.deregister(mr) {
            Ok(()) => {
                self.counters.deregistrations.add(1);
                self.generation.monitor().unsubscribe(range);
                None
            }
            Err(DeregisterFailed { mr, source: _ }) => {
                self.counters.deregister_failures.add(1);
                let wait_ns = (FIRST_RETRY_NS << tries.min(10)).min(LAST_RETRY_NS);
                Some(Failing { mr, range, zoned, tries, not_before_ns: self.host.now_ns() + wait_ns })
            }
        }
    }

    /// Books a reaped batch: records are free again, what failed stays charged.
    fn settle(&self, gone: &[Doomed], failed: Vec<Failing<P>>, batch: u64) -> usize {
        let mut state = self.state();
        for doomed in gone {
            let Some(region) = self.slab.get(doomed.index) else { continue };
            let (range, zoned) = (region.range(), region.is_zoned());
            state.free(&self.slab, doomed.index);
            self.discharge(&mut state, range, zoned);
        }
        let done = gone.len() - failed.len();
        for failing in failed {
            self.recharge(&mut state, failing);
        }
        state.reaping -= batch;
        self.gauge(&state);
        if state.watches.has_ended() {
            self.notifier.inbox().wake.wake();
        }
        done
    }

    fn discharge(&self, state: &mut State<P>, range: PageRange, zoned: bool) {
        state.discharge(range.pages(), zoned);
        self.counters.regions_registered.sub(1);
        self.counters.bytes_registered.sub(range.len_bytes() as u64);
    }

    fn recharge(&self, state: &mut State<P>, failing: Failing<P>) {
        state.charge(failing.range.pages(), failing.zoned);
        self.counters.regions_registered.add(1);
        self.counters.bytes_registered.add(failing.range.len_bytes() as u64);
        state.failing.push(failing);
    }

    fn gauge(&self, state: &State<P>) {
        let held = state.doomed.iter().filter(|d| d.held).count() as u64;
        self.counters.regions_draining.set(held);
        let pending = state.doomed.len() as u64 - held + state.failing.len() as u64;
        self.counters.regions_pending.set(pending);
    }

    /// Tries failed deregistrations again, those that are due.
    pub(super) fn retry_failing(&self) -> usize {
        let now_ns = self.host.now_ns();
        let due: Vec<_> = {
            let mut state = self.state();
            let (due, later) =
                std::mem::take(&mut state.failing).into_iter().partition(|f| f.not_before_ns <= now_ns);
            state.failing = later;
            due
        };
        due.into_iter().map(|f| usize::from(self.retry(f))).sum()
    }

    fn retry(&self, failing: Failing<P>) -> bool {
        let Failing { mr, range, zoned, tries, .. } = failing;
        let again = self.deregister(mr, range, zoned, tries + 1);
        let mut state = self.state();
        match again {
            Some(failing) => {
                state.failing.push(failing);
                false
            }
            None => {
                self.discharge(&mut state, range, zoned);
                true
            }
        }
    }

    /// Gives back a registration that never became a region.
    pub(super) fn discard(&self, mr: P::Mr, extent: Extent) {
        let failed = self.deregister(mr, extent.range, extent.zoned, 1);
        let mut state = self.state();
        state.discharge(extent.range.pages(), extent.zoned);
        if let Some(failing) = failed {
            self.recharge(&mut state, failing);
        }
    }

    /// The last put of a single-use registration deregisters it, if this thread may; else it is
    /// left to the owner's [`drive`](Self::drive).
    pub(super) fn put_single(&self, index: u32) {
        if self.drained.is_forked() || !self.retire_single(index) {
            return;
        }
        let failed: Vec<_> = self.deregister_region(index).into_iter().collect();
        self.settle(&[Doomed { index, held: false }], failed, 1);
    }

    /// Unlinks it; whether the caller shall deregister it. Single-use regions are held by count
    /// alone, so no fence is needed to see that nobody does.
    fn retire_single(&self, index: u32) -> bool {
        let mut state = self.state();
        let Some(region) = self.slab.get(index).filter(|r| !r.is_counted()) else { return false };
        if !state.single.remove(&index) {
            return false; // another clone's put was later, and did it
        }
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
