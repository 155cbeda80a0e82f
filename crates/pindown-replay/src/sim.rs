//! The simulator: one policy, one budget, one workload.

use std::sync::atomic::{AtomicU64, Ordering};

use pindown_core::PolicyKind;
use pindown_core::eviction::{EvictionPolicy, Inserted, Removal, Shortage, UseClock, UseWord, Uses};

use crate::workload::{Step, Workload, pages};

/// Room for registrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Most bytes registered at a time; `u64::MAX`: any.
    pub max_bytes: u64,
    /// Most registrations at a time; `u64::MAX`: any.
    pub max_regions: u64,
}

/// No bound is `null`: the number is beyond what many JSON readers keep exact.
pub(crate) fn bounded<S: serde::Serializer>(n: &u64, out: S) -> Result<S::Ok, S::Error> {
    if *n == u64::MAX { out.serialize_none() } else { out.serialize_some(n) }
}

/// What came of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Run {
    /// The policy's name.
    pub policy: String,
    /// The budget.
    #[serde(serialize_with = "bounded")]
    pub max_bytes: u64,
    /// The budget.
    #[serde(serialize_with = "bounded")]
    pub max_regions: u64,
    /// Requests.
    pub acquires: u64,
    /// Served by what was registered.
    pub hits: u64,
    /// Registered anew.
    pub misses: u64,
    /// Of the misses: larger than the budget, or no room because all else was held; not kept.
    pub uncached: u64,
    /// Dropped for room.
    pub evictions: u64,
    /// Dropped because memory changed.
    pub invalidated: u64,
    /// Most bytes registered at a time.
    pub registered_bytes_peak: u64,
    /// Most registrations at a time.
    pub registered_regions_peak: u64,
    /// What the registrations cost, in nanoseconds.
    pub cost_ns: u64,
}

/// Replays `workload` with a fresh policy of `kind`. `progress` is called now and then with the
/// number of steps done since its last call.
pub fn simulate(workload: &Workload, kind: PolicyKind, budget: Budget, progress: &mut dyn FnMut(u64)) -> Run {
    simulate_with(workload, kind.boxed(), budget, progress)
}

/// [`simulate`] for any policy.
pub fn simulate_with(
    workload: &Workload,
    policy: Box<dyn EvictionPolicy>,
    budget: Budget,
    progress: &mut dyn FnMut(u64),
) -> Run {
    let mut sim = Sim::new(workload, policy, budget);
    for chunk in workload.steps.chunks(1 << 16) {
        chunk.iter().for_each(|step| sim.step(*step));
        progress(chunk.len() as u64);
    }
    sim.table.run
}

/// What the simulated cache knows of an object.
#[derive(Debug, Default)]
struct State {
    word: AtomicU64,
    /// Acquisitions of what is (or was, if it was invalidated meanwhile) registered.
    holds: u32,
    resident: bool,
}

struct Table<'a> {
    workload: &'a Workload,
    states: Vec<State>,
    now: u64,
    short_of: Shortage,
    run: Run,
}

impl Uses for Table<'_> {
    fn word(&self, region: u32) -> UseWord {
        UseWord::from_bits(self.states[region as usize].word.load(Ordering::Relaxed))
    }
    fn held(&self, region: u32) -> bool {
        self.states[region as usize].holds > 0
    }
    fn now(&self) -> u64 {
        self.now
    }
    fn short_of(&self) -> Shortage {
        self.short_of
    }
}

struct Sim<'a> {
    table: Table<'a>,
    policy: Box<dyn EvictionPolicy>,
    clock: UseClock,
    max_pages: u64,
    live_pages: u64,
    live_regions: u64,
    samples: Vec<u64>,
}

impl<'a> Sim<'a> {
    fn new(workload: &'a Workload, policy: Box<dyn EvictionPolicy>, budget: Budget) -> Self {
        let mut states = Vec::new();
        states.resize_with(workload.objects.len(), State::default);
        let run = Run {
            policy: policy.name().to_owned(),
            max_bytes: budget.max_bytes,
            max_regions: budget.max_regions,
            ..Run::default()
        };
        Self {
            clock: UseClock::new(policy.sampling_shift()),
            table: Table { workload, states, now: 0, short_of: Shortage::Bytes, run },
            policy,
            max_pages: budget.max_bytes >> pindown_core::PAGE_SHIFT,
            live_pages: 0,
            live_regions: 0,
            samples: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Use(object) => self.request(object),
            Step::Acquire(object) => {
                self.request(object);
                self.table.states[object as usize].holds += 1;
            }
            Step::Put(object) => self.table.states[object as usize].holds -= 1,
            Step::Invalidate(change) => self.invalidate(change),
        }
    }

    fn request(&mut self, object: u32) {
        self.table.run.acquires += 1;
        if let Some(at) = self.find(object) {
            self.table.run.hits += 1;
            let id = self.id(at);
            self.clock.hit(&self.table.states[at as usize].word, id);
        } else {
            self.miss(object);
        }
    }

    fn find(&self, object: u32) -> Option<u32> {
        if self.table.states[object as usize].resident {
            return Some(object);
        }
        let covers = &self.table.workload.covers[object as usize];
        covers.iter().copied().find(|c| self.table.states[*c as usize].resident)
    }

    fn id(&self, object: u32) -> u64 {
        (self.table.workload.objects[object as usize].range.start() >> pindown_core::PAGE_SHIFT) as u64
    }

    fn miss(&mut self, object: u32) {
        let info = self.table.workload.objects[object as usize];
        self.clock.advance(self.table.run.acquires);
        self.table.now = self.clock.now();
        self.clock.take_samples(&mut self.samples);
        self.policy.reused(&self.samples, self.table.now);
        self.table.run.misses += 1;
        self.table.run.cost_ns += info.cost_ns;
        if !self.make_room(pages(&info)) {
            self.table.run.uncached += 1;
            return;
        }
        self.insert(object, pages(&info), info.cost_ns);
    }

    fn make_room(&mut self, wanted: u64) -> bool {
        if wanted > self.max_pages || self.table.run.max_regions == 0 {
            return false;
        }
        loop {
            let by_regions = self.live_regions >= self.table.run.max_regions;
            if !by_regions && self.live_pages + wanted <= self.max_pages {
                return true;
            }
            self.table.short_of = if by_regions { Shortage::Regions } else { Shortage::Bytes };
            self.clock.set_capacity(self.live_regions);
            let Some(victim) = self.policy.victim(&self.table) else { return false };
            self.clock.set_sampling(self.policy.sampling_shift());
            self.remove(victim, Removal::Evicted);
            self.table.run.evictions += 1;
        }
    }

    fn insert(&mut self, object: u32, pages: u64, cost_ns: u64) {
        let state = &mut self.table.states[object as usize];
        state.resident = true;
        state.word.store(UseWord::first(self.table.now).bits(), Ordering::Relaxed);
        self.live_pages += pages;
        self.live_regions += 1;
        let peak = &mut self.table.run.registered_bytes_peak;
        *peak = (*peak).max(self.live_pages << pindown_core::PAGE_SHIFT);
        let peak = &mut self.table.run.registered_regions_peak;
        *peak = (*peak).max(self.live_regions);
        let id = self.id(object);
        self.policy.inserted(Inserted { region: object, pages, cost_ns, id }, self.table.now);
    }

    fn remove(&mut self, object: u32, why: Removal) {
        self.policy.removed(object, self.id(object), self.table.word(object), why);
        self.table.states[object as usize].resident = false;
        self.live_pages -= pages(&self.table.workload.objects[object as usize]);
        self.live_regions -= 1;
    }

    fn invalidate(&mut self, change: u32) {
        let workload = self.table.workload;
        for &object in &workload.touched[change as usize] {
            if self.table.states[object as usize].resident {
                self.remove(object, Removal::Invalidated);
                self.table.run.invalidated += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::CostModel;
    use pindown_core::Access;
    use pindown_core::trace::{Event, Op};

    fn uses(objects: &[u64]) -> Vec<Event> {
        let acquire = |(id, o): (usize, &u64)| {
            let (id, addr) = (id as u64, (o + 1) << 20);
            [
                Event { t_ns: 0, op: Op::Acquire { id, addr, len: 4096, access: Access::READ } },
                Event { t_ns: 0, op: Op::Put { id } },
            ]
        };
        objects.iter().enumerate().flat_map(acquire).collect()
    }

    fn run(trace: &[Event], kind: PolicyKind, max_regions: u64) -> Run {
        let workload = Workload::compile(trace, Some(CostModel { fixed_ns: 10.0, per_byte_ns: 0.0 }));
        simulate(&workload, kind, Budget { max_bytes: u64::MAX, max_regions }, &mut |_| ())
    }

    #[test]
    fn lru_by_hand() {
        let r = run(&uses(&[0, 1, 0, 2, 0, 1]), PolicyKind::Lru, 2);
        assert_eq!((r.acquires, r.hits, r.misses, r.evictions, r.cost_ns), (6, 2, 4, 2, 40));
        assert_eq!(r.registered_bytes_peak, 8192);
    }

    #[test]
    fn held_regions_stay_and_the_budget_holds() {
        let mut trace = uses(&[5]);
        let acquire = Op::Acquire { id: 77, addr: 9 << 20, len: 4096, access: Access::READ };
        trace.push(Event { t_ns: 0, op: acquire });
        trace.extend(uses(&[0, 1, 2]));
        trace.extend([Event { t_ns: 0, op: acquire }, Event { t_ns: 0, op: Op::Put { id: 77 } }]);
        for kind in PolicyKind::ALL {
            let r = run(&trace, *kind, 1);
            assert_eq!((r.hits, r.misses), (1, 5), "{kind:?}");
            assert_eq!((r.uncached, r.registered_bytes_peak), (3, 4096), "{kind:?}");
        }
    }

    #[test]
    fn changes_drop_what_they_touch() {
        let mut trace = uses(&[0, 1]);
        trace.push(Event { t_ns: 0, op: Op::Invalidate { addr: 1 << 20, len: 1 } });
        trace.extend(uses(&[0, 1]));
        let r = run(&trace, PolicyKind::Adaptive, 9);
        assert_eq!((r.hits, r.misses, r.invalidated), (1, 3, 1));
    }
}
