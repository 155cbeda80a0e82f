//! What no policy can beat.
//!
//! [`bound`] is for those that know the future, [`expected_cost_ns`] for those that do not, where
//! requests are known to be random. The first sees the trace as *gaps*: from one request of a thing to its next, without a change of
//! its memory between. Keeping it over a gap saves a registration and takes room at every request
//! inside. Things that contain each other count as one of the smallest size and the least cost, and
//! held registrations as free to go, so it stays below what is possible.
//!
//! - Equal sizes and costs: Belady's MIN, exact.
//! - Otherwise: the Lagrangian dual of the fractional problem. Any prices of room `p >= 0`, one a stretch
//!   of requests, prove `cost >= all - sum(p * room) - sum(max(0, saved - size * price of the gap))`;
//!   good prices are found by subgradient steps.

mod dual;
mod expected;
mod min;

pub use expected::{Draws, expected_cost_ns};

use std::collections::HashMap;

use crate::sim::Budget;
use crate::workload::{Step, Workload, pages};

/// The least that the misses and their registrations can cost.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Bound {
    /// The budget.
    #[serde(serialize_with = "crate::sim::bounded")]
    pub max_bytes: u64,
    /// The budget.
    #[serde(serialize_with = "crate::sim::bounded")]
    pub max_regions: u64,
    /// At least so many misses.
    pub misses: u64,
    /// At least this cost, in nanoseconds.
    pub cost_ns: u64,
    /// By Belady's MIN: both are reached.
    pub exact: bool,
}

/// Bounds `workload` under `budget`.
pub fn bound(workload: &Workload, budget: Budget) -> Bound {
    let requests = Requests::of(workload);
    let by_pages = budget.max_bytes >> pindown_core::PAGE_SHIFT;
    let costs = requests.bound(workload, by_pages, budget.max_regions, Measure::Cost);
    let misses = requests.bound(workload, by_pages, budget.max_regions, Measure::Misses);
    Bound {
        max_bytes: budget.max_bytes,
        max_regions: budget.max_regions,
        misses: misses.0.ceil() as u64,
        cost_ns: costs.0 as u64,
        exact: costs.1 && misses.1,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Measure {
    Cost,
    Misses,
}

/// The requests of a workload and their gaps.
struct Requests {
    class: Vec<u32>,
    /// By request: the request that the gap before it began with.
    previous: Vec<Option<u32>>,
    pages: HashMap<u32, u64>,
    cost: HashMap<u32, u64>,
    has_covers: bool,
}

impl Requests {
    fn of(workload: &Workload) -> Self {
        let class_of = |object: u32| workload.objects[object as usize].class;
        let (mut class, mut previous) = (Vec::new(), Vec::new());
        let mut last: HashMap<u32, u32> = HashMap::new();
        for step in &workload.steps {
            match *step {
                Step::Use(object) | Step::Acquire(object) => {
                    let at = class.len() as u32;
                    previous.push(last.insert(class_of(object), at));
                    class.push(class_of(object));
                }
                Step::Put(_) => {}
                Step::Invalidate(change) => gone(workload, change, &mut last),
            }
        }
        let least = |f: &dyn Fn(u32) -> u64| {
            let mut least: HashMap<u32, u64> = HashMap::new();
            for object in 0..workload.objects.len() as u32 {
                let entry = least.entry(class_of(object)).or_insert(u64::MAX);
                *entry = f(object).min(*entry);
            }
            least
        };
        Self {
            class,
            previous,
            pages: least(&|o| pages(&workload.objects[o as usize])),
            cost: least(&|o| workload.objects[o as usize].cost_ns),
            has_covers: workload.covers.iter().any(|c| !c.is_empty()),
        }
    }

    /// The bound by each limit alone; the greater holds for both.
    fn bound(&self, workload: &Workload, max_pages: u64, max_regions: u64, measure: Measure) -> (f64, bool) {
        let all = |map: &HashMap<u32, u64>, v: u64| map.values().all(|x| *x == v);
        let any = |map: &HashMap<u32, u64>| map.values().next().copied().unwrap_or(1);
        let equal_pages = all(&self.pages, any(&self.pages)) && !self.has_covers;
        let equal_costs = measure == Measure::Misses || all(&self.cost, any(&self.cost));
        let unit = if measure == Measure::Misses { 1.0 } else { any(&self.cost) as f64 };
        if equal_costs && (equal_pages || max_pages >= self.pages.values().sum()) {
            let fit = if equal_pages { max_pages / any(&self.pages).max(1) } else { u64::MAX };
            let room = max_regions.min(fit);
            let exact = !self.has_covers && workload.touched.is_empty();
            return (min::misses(&self.previous, room) as f64 * unit, exact);
        }
        let by_pages = self.dual(|c| self.pages[&c], max_pages, measure);
        let by_regions = self.dual(|_| 1, max_regions, measure);
        (by_pages.max(by_regions), false)
    }

    fn dual(&self, size: impl Fn(u32) -> u64, room: u64, measure: Measure) -> f64 {
        let distinct: u64 = self.pages.keys().map(|c| size(*c)).sum();
        let value = |c: u32| if measure == Measure::Misses { 1.0 } else { self.cost[&c] as f64 };
        let items: Vec<_> =
            self.class.iter().map(|c| dual::Item { size: size(*c) as f64, value: value(*c) }).collect();
        if room >= distinct {
            // Nothing is ever short: each thing is registered once, and after each change.
            return items.iter().zip(&self.previous).filter(|(_, p)| p.is_none()).map(|(i, _)| i.value).sum();
        }
        dual::bound(&items, &self.previous, room as f64)
    }
}

fn gone(workload: &Workload, change: u32, last: &mut HashMap<u32, u32>) {
    // A class may be touched in part: what is left of it can still serve, so only a class that is
    // touched whole ends its gap.
    let touched = &workload.touched[change as usize];
    for &object in touched {
        let own = &workload.objects[object as usize];
        let alone = workload.covers[object as usize].is_empty();
        if alone && own.class == object && !is_cover(workload, object) {
            last.remove(&own.class);
        }
    }
}

/// Whether others share the object's class.
fn is_cover(workload: &Workload, object: u32) -> bool {
    workload.shared_classes.contains(&workload.objects[object as usize].class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Scenario;
    use crate::{default_budgets, simulate};
    use pindown_core::PolicyKind;

    #[test]
    fn nothing_beats_the_bound_and_room_for_all_reaches_it() {
        for name in ["mpi", "storage", "stack", "drift"] {
            let trace = Scenario::named(name).unwrap().trace();
            let workload = Workload::compile(&trace[..trace.len() / 8], None);
            for budget in default_budgets(&workload).into_iter().skip(1).step_by(3) {
                let best = bound(&workload, budget);
                for kind in PolicyKind::ALL {
                    let run = simulate(&workload, *kind, budget, &mut |_| ());
                    assert!(
                        run.misses >= best.misses && run.cost_ns >= best.cost_ns,
                        "{name}: {run:?} {best:?}"
                    );
                }
            }
            let all = Budget { max_bytes: workload.footprint_bytes() * 2, max_regions: u64::MAX };
            let (run, best) = (simulate(&workload, PolicyKind::Lru, all, &mut |_| ()), bound(&workload, all));
            assert_eq!((run.misses, run.cost_ns), (best.misses, best.cost_ns), "{name}");
        }
    }
}
