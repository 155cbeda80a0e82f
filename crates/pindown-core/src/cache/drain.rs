//! Reported changes reach the table.

use super::Inner;
use super::state::State;
use crate::hold::State as RegionState;
use crate::monitor::{Drained, EventKind};
use crate::pending::Taken;
use crate::sync::{MutexGuard, yield_now};
use crate::{PageRange, Provider};

impl<P: Provider> Inner<P> {
    /// The state, right for everything reported so far.
    pub(super) fn drained_state(&self) -> MutexGuard<'_, State<P>> {
        let mut state = self.state();
        self.drain(&mut state);
        state
    }

    /// Takes what was reported and makes overlapping regions stale.
    ///
    /// The generation is read before the set is taken, so everything counted in it is taken; what
    /// comes later moves the word again.
    pub(super) fn drain(&self, state: &mut State<P>) {
        if self.is_current() {
            return;
        }
        let inbox = self.notifier.inbox();
        let own = self.even_generation();
        let external = self.drain_monitor();
        inbox.take(|taken| match taken {
            Taken::Range(range, kind) => drop(self.apply(state, range, kind)),
            Taken::Everything => self.apply_everything(state),
        });
        self.counters.drains.add(1);
        self.drained.set(own, external);
    }

    /// The notifier's word once no reader is between reading and pushing. Such a reader neither
    /// blocks nor allocates, so this ends when it is scheduled.
    fn even_generation(&self) -> u64 {
        let mut spins = 0u32;
        loop {
            let own = self.notifier.inbox().generation();
            if own.is_multiple_of(2) {
                return own;
            }
            spins += 1;
            if spins < 128 && !cfg!(loom) { std::hint::spin_loop() } else { yield_now() }
        }
    }

    fn drain_monitor(&self) -> u64 {
        if self.generation.load() == self.drained.external() {
            return self.drained.external();
        }
        match self.generation.monitor().drain(&self.notifier) {
            Drained::UpTo(generation) => generation,
            Drained::Lost(generation) => {
                self.notifier.push_lost();
                generation
            }
        }
    }

    fn apply(&self, state: &mut State<P>, range: PageRange, kind: EventKind) -> usize {
        if self.coherent && kind != EventKind::Sweep && kind != EventKind::Manual {
            return 0;
        }
        for flight in state.flights.iter().filter(|f| f.range.overlaps(range)) {
            flight.invalidate();
        }
        state.zones.forget(range);
        let mut stale = 0;
        for index in state.overlapping(range) {
            // A chunk's entry is reported for any of its pages: look at the region itself.
            let hit = self.slab.get(index).is_some_and(|r| r.range().overlaps(range));
            stale += usize::from(hit && self.make_stale(state, index));
        }
        stale
    }

    fn apply_everything(&self, state: &mut State<P>) {
        state.flights.iter().for_each(|f| f.invalidate());
        state.zones.forget(PageRange::everything());
        for index in state.all() {
            self.make_stale(state, index);
        }
    }

    /// Returns whether it was live.
    pub(super) fn make_stale(&self, state: &mut State<P>, index: u32) -> bool {
        let live = self.slab.get(index).is_some_and(|r| r.state() == RegionState::Live);
        state.doom(&self.slab, index, RegionState::Stale, &self.counters);
        if live {
            self.counters.invalidated.add(1);
        }
        live
    }

    pub(super) fn invalidate(&self, range: PageRange) -> usize {
        if self.drained.is_forked() {
            return 0;
        }
        self.notifier.inbox().counts.event(EventKind::Manual);
        let stale = {
            let mut state = self.drained_state();
            self.apply(&mut state, range, EventKind::Manual)
        };
        if stale > 0 {
            self.notifier.inbox().wake.wake();
        }
        stale
    }
}
