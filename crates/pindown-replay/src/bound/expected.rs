//! What is the least to be expected of a policy that does not know the future.
//!
//! Where a request is drawn at random by a known law, independently of all before it, what is
//! registered at that moment was decided without knowing it. With chances `p` and costs `c`
//! its expected cost is `sum(p c)` over all things less the same sum over those registered: at least
//! `sum(p c)` less the most valuable filling of the room with things that were requested before
//! (a fractional knapsack, so never too little). This holds for each request given all before it,
//! so the sum over a trace is a bound on the expected cost of every policy, also of one that
//! is told the law. What a trace really costs differs by chance, as a martingale: by about one part
//! in the root of its number of misses.
//!
//! Requests that are not drawn count where they are the first for their thing.

use std::collections::HashMap;

use super::{Budget, Step, Workload, pages};

/// Which requests of a trace are independent draws.
#[derive(Clone, Debug, Default)]
pub struct Draws {
    /// By law: addresses of the things and the chance of each.
    pub laws: Vec<Vec<(u64, f64)>>,
    /// By request: its law.
    pub drawn: Vec<Option<u32>>,
}

/// Requests between two fillings of the room. Each filling may use what is requested up to the
/// next, which only lowers the bound.
const STRETCH: usize = 1000;

/// The least expected cost of any policy without foresight, in nanoseconds. `workload` is of the
/// trace that `draws` tells of, changes no memory, and no two of its things overlap.
pub fn expected_cost_ns(workload: &Workload, draws: &Draws, budget: Budget) -> f64 {
    let by_pages =
        Knapsack { room: (budget.max_bytes >> pindown_core::PAGE_SHIFT) as f64, by_regions: false };
    let by_regions = Knapsack { room: budget.max_regions as f64, by_regions: true };
    let least = |knapsack| Expected::new(workload, draws, knapsack).sum();
    f64::max(least(by_pages), least(by_regions))
}

#[derive(Clone, Copy)]
struct Knapsack {
    room: f64,
    by_regions: bool,
}

/// One thing of a law.
struct Thing {
    object: u32,
    /// What having it registered saves of one draw, on average.
    saves_ns: f64,
    size: f64,
}

struct Expected<'a> {
    workload: &'a Workload,
    draws: &'a Draws,
    knapsack: Knapsack,
    /// By law, the best value for its size first.
    laws: Vec<Vec<Thing>>,
    seen: Vec<bool>,
}

impl<'a> Expected<'a> {
    fn new(workload: &'a Workload, draws: &'a Draws, knapsack: Knapsack) -> Self {
        let at = |o: u32| (workload.objects[o as usize].range.start() as u64, o);
        let by_addr: HashMap<u64, u32> = (0..workload.objects.len() as u32).map(at).collect();
        let thing = |&(addr, chance): &(u64, f64)| {
            let object = *by_addr.get(&addr)?; // never drawn: it saves nothing
            let info = &workload.objects[object as usize];
            let size = if knapsack.by_regions { 1.0 } else { pages(info) as f64 };
            Some(Thing { object, saves_ns: chance * info.cost_ns as f64, size })
        };
        let sorted = |law: &Vec<(u64, f64)>| {
            let mut things: Vec<_> = law.iter().filter_map(thing).collect();
            things.sort_by(|a, b| (b.saves_ns / b.size).total_cmp(&(a.saves_ns / a.size)));
            things
        };
        let laws = draws.laws.iter().map(sorted).collect();
        Self { workload, draws, knapsack, laws, seen: vec![false; workload.objects.len()] }
    }

    fn sum(mut self) -> f64 {
        let request = |s: &Step| match *s {
            Step::Use(object) | Step::Acquire(object) => Some(object),
            Step::Put(_) | Step::Invalidate(_) => None,
        };
        let objects: Vec<u32> = self.workload.steps.iter().filter_map(request).collect();
        let stretches = objects.chunks(STRETCH).zip(self.draws.drawn.chunks(STRETCH));
        stretches.map(|(objects, drawn)| self.stretch(objects, drawn)).sum()
    }

    fn stretch(&mut self, objects: &[u32], drawn: &[Option<u32>]) -> f64 {
        let mut sum = 0.0;
        for (object, _) in objects.iter().zip(drawn).filter(|(_, law)| law.is_none()) {
            let is_first = !std::mem::replace(&mut self.seen[*object as usize], true);
            sum += if is_first { self.workload.objects[*object as usize].cost_ns as f64 } else { 0.0 };
        }
        objects.iter().for_each(|o| self.seen[*o as usize] = true);
        for law in 0..self.laws.len() as u32 {
            let count = drawn.iter().filter(|d| **d == Some(law)).count();
            if count > 0 {
                sum += count as f64 * self.least_of_one_draw(law);
            }
        }
        sum
    }

    fn least_of_one_draw(&self, law: u32) -> f64 {
        let things = &self.laws[law as usize];
        let all: f64 = things.iter().map(|t| t.saves_ns).sum();
        let (mut room, mut saved) = (self.knapsack.room, 0.0);
        for thing in things.iter().filter(|t| self.seen[t.object as usize]) {
            let part = (room / thing.size).min(1.0);
            saved += thing.saves_ns * part;
            room -= thing.size * part;
            if room <= 0.0 {
                break;
            }
        }
        all - saved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate;
    use crate::suite::Scenario;
    use pindown_core::PolicyKind;

    /// The policy that is told the law: it keeps the most valuable, and lets all else through.
    #[test]
    fn whoever_knows_the_law_comes_close_and_nobody_below() {
        let (trace, draws) = Scenario::named("uniform").unwrap().trace_and_draws();
        let workload = Workload::compile(&trace, None);
        for percent in [25, 50, 91] {
            let max_regions = workload.footprint_regions() * percent / 100;
            let budget = Budget { max_bytes: u64::MAX, max_regions };
            let least = expected_cost_ns(&workload, &draws, budget);
            let run = simulate(&workload, PolicyKind::S3Fifo, budget, &mut |_| ());
            let ratio = run.cost_ns as f64 / least;
            // All buffers are alike, so every policy is as good as any: by chance within a percent.
            assert!((0.99..1.05).contains(&ratio), "{percent} %: {ratio}");
        }
    }

    #[test]
    fn by_hand() {
        let event = |op| pindown_core::trace::Event { t_ns: 0, op };
        let acquire = |id: u64, thing: u64| {
            let (addr, len) = ((thing + 1) << 20, 4096);
            let access = pindown_core::Access::READ;
            [
                event(pindown_core::trace::Op::Acquire { id, addr, len, access }),
                event(pindown_core::trace::Op::Put { id }),
            ]
        };
        let trace: Vec<_> = [0, 1, 0, 2].iter().zip(1..).flat_map(|(t, id)| acquire(id, *t)).collect();
        let cost = crate::CostModel { fixed_ns: 100.0, per_byte_ns: 0.0 };
        let workload = Workload::compile(&trace, Some(cost));
        let law = vec![(1 << 20, 0.5), (2 << 20, 0.3), (3 << 20, 0.2)];
        let draws = Draws { laws: vec![law], drawn: vec![Some(0), Some(0), Some(0), None] };
        let budget = |max_regions| Budget { max_bytes: u64::MAX, max_regions };
        // Three draws that miss half the time, and one first request.
        assert_eq!(expected_cost_ns(&workload, &draws, budget(1)).round(), 3.0 * 50.0 + 100.0);
        assert_eq!(expected_cost_ns(&workload, &draws, budget(2)).round(), 3.0 * 20.0 + 100.0);
        assert_eq!(expected_cost_ns(&workload, &draws, budget(0)).round(), 400.0);
    }
}
