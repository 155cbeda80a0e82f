//! The hit.

use std::sync::Arc;

use super::state::{State, span_of};
use super::{Inner, Registration};
use crate::hold::{self, Held};
use crate::interval_map::FAST;
use crate::monitor::{EventKind, Validity};
use crate::sync::MutexGuard;
use crate::{ADDRESS_SPACE_END, Access, PAGE_SHIFT, PAGE_SIZE, PageRange, Provider};

impl<P: Provider> Inner<P> {
    /// Whether nothing was reported that the table does not know.
    ///
    /// A change that completed before this call moved a word before it completed, so it is seen
    /// here; the table was made right before `drained` was stored, so it is right for what
    /// follows. An odd word equals nothing that was drained.
    #[inline(always)]
    pub(super) fn is_current(&self) -> bool {
        self.drained.is(|| self.notifier.inbox().generation().wrapping_add(self.generation.load()))
    }

    /// Whether every change whose effect this thread may have seen has moved a word: asked before
    /// the words are compared, of monitors whose events come after the effect.
    #[inline(always)]
    pub(super) fn is_settled(&self) -> bool {
        !self.must_settle || self.generation.monitor().settle()
    }

    /// The hit without a lock, in all its forms: `None` means "look closer", not "there is none".
    #[inline]
    pub(super) fn hit(&self, addr: usize, len: usize, access: Access) -> Option<Held<P>> {
        let end = addr.checked_add(len)?;
        if len == 0 || end > ADDRESS_SPACE_END || (self.must_look && !self.may_hit()) || !self.is_current() {
            return None;
        }
        self.find_fast(addr, len, access)
    }

    /// Recorded requests go the slow way, so that recording costs nothing when it is off.
    #[inline(always)]
    fn may_hit(&self) -> bool {
        self.recorder.is_none() && self.is_settled()
    }

    /// The rest of [`hit`](Self::hit): the request is a range, nothing is to be drained.
    #[inline(always)]
    pub(super) fn find_fast(&self, addr: usize, len: usize, access: Access) -> Option<Held<P>> {
        let pages = ((addr & (PAGE_SIZE - 1)) + len).div_ceil(PAGE_SIZE) as u64;
        let found = self.table.find((addr >> PAGE_SHIFT) as u64, pages, access.class() | FAST)?;
        let index = found.entry.index();
        let record = if self.uses_slots { hold::my_record() } else { None };
        let held = Held::try_new(record, self.slab.get(index)?, found.at, found.entry.word())?;
        held.touch(&self.clock);
        self.count_hit();
        Some(held)
    }

    #[inline(always)]
    fn count_hit(&self) {
        match hold::my_record() {
            Some(record) if record.count_hit(&self.counter) => {}
            record => self.count_hit_slow(record),
        }
    }

    #[cold]
    fn count_hit_slow(&self, record: Option<&'static hold::ThreadRecord>) {
        match record {
            Some(record) => {
                hold::flush_hits(record, self.id);
                record.count_hit(&self.counter);
            }
            None => {
                self.counters.hits.add(1);
            }
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn lookup_slow(
        self_: &Arc<Self>,
        addr: usize,
        len: usize,
        access: Access,
    ) -> Option<Registration<P>> {
        if let Some(held) = self_.hit(addr, len, access) {
            return Some(Registration::new(held));
        }
        match self_.recorder {
            Some(recorder) => Self::lookup_recorded(self_, recorder, addr, len, access),
            None => Self::lookup_exact(self_, addr, len, access),
        }
    }

    #[cold]
    pub(super) fn peek_slow(
        self_: &Arc<Self>,
        addr: usize,
        len: usize,
        access: Access,
    ) -> Option<Registration<P>> {
        match self_.recorder {
            Some(recorder) => Self::lookup_recorded(self_, recorder, addr, len, access),
            None => Self::find_exact(self_, addr, len, access, 0),
        }
    }

    pub(super) fn lookup_exact(
        self_: &Arc<Self>,
        addr: usize,
        len: usize,
        access: Access,
    ) -> Option<Registration<P>> {
        Self::find_exact(self_, addr, len, access, 1)
    }

    /// A miss counts as `misses`.
    fn find_exact(
        self_: &Arc<Self>,
        addr: usize,
        len: usize,
        access: Access,
        misses: u64,
    ) -> Option<Registration<P>> {
        let range = PageRange::covering(addr, len).ok()?;
        if self_.drained.is_forked() || !self_.is_settled() {
            return None;
        }
        let state = self_.drained_state();
        let held = if state.closed { None } else { self_.find_held(state, range, access) };
        let counters = &self_.counters;
        match held {
            Some(_) => counters.hits.add(1),
            None => counters.misses.add(misses),
        };
        held.map(Registration::new)
    }

    /// The exact lookup, under the lock: any region that serves the request. Asks the monitor,
    /// without the lock, about regions that must be checked.
    pub(super) fn find_held<'s>(
        &'s self,
        mut state: MutexGuard<'s, State<P>>,
        range: PageRange,
        access: Access,
    ) -> Option<Held<P>> {
        loop {
            let index = state.map.find(range, access.class())?;
            let region = self.slab.get(index)?;
            let held = Held::count(region);
            let Some(stamp) = state.stamps.get(&index).copied() else {
                self.learn(&mut state, index, range);
                held.touch(&self.clock);
                return Some(held);
            };
            drop(state);
            if self.generation.monitor().validate(held.range(), stamp) == Validity::Valid {
                held.touch(&self.clock);
                return Some(held);
            }
            state = self.drained_state();
            // Held meanwhile, so the record still is this region's.
            self.found_changed(&mut state, index);
        }
    }

    fn found_changed(&self, state: &mut State<P>, index: u32) {
        self.notifier.inbox().counts.event(EventKind::Check);
        self.make_stale(state, index);
        self.notifier.inbox().wake.wake();
    }

    /// A request reached `index` by the slow path: the next from the same page need not.
    fn learn(&self, state: &mut State<P>, index: u32, range: PageRange) {
        let Some(region) = self.slab.get(index) else { return };
        if region.is_zoned() {
            state.zones.request(range);
        }
        state.map.promote(span_of(index, region), range.first_page());
        state.hide_displaced(&self.slab);
    }

    /// Lets time pass for the policy: called on misses, under the lock.
    pub(super) fn advance_clock(&self, state: &mut State<P>) -> u64 {
        state.slow_requests += 1;
        // Summing all threads' hits on every miss would cost more than it tells.
        if state.slow_requests.is_multiple_of(16) {
            let requests = state.slow_requests + hold::registry().hits(self.id);
            self.clock.advance(requests.max(self.clock.now() + 1));
        } else {
            self.clock.advance(self.clock.now() + 1);
        }
        let (now, state) = (self.clock.now(), &mut *state);
        self.clock.take_samples(&mut state.reused);
        state.policy.reused(&state.reused, now);
        now
    }
}
