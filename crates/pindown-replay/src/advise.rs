//! [`advise`]: which settings a trace asks for, in words.

use std::fmt::Write;

use pindown_core::PolicyKind;

use crate::sim::Run;
use crate::sweep::{Curves, default_budgets};
use crate::workload::{Step, Workload};

/// More room is worth having while it saves this share of the avoidable cost.
const ENOUGH: f64 = 0.05;
/// A change of policy must save this share of cost to be advised.
const POLICY_GAIN: f64 = 0.02;

/// What to set, and why.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Advice {
    /// The policy's name.
    pub policy: String,
    /// Most bytes to keep registered.
    pub max_bytes: u64,
    /// Most registrations to keep: what that budget held at most, with a quarter to spare.
    pub max_regions: u64,
    /// Sentences, most important first.
    pub reasons: Vec<String>,
    /// Rust code for the builder.
    pub snippet: String,
    /// What was tried.
    pub curves: Curves,
}

/// Replays `workload` at a spread of budgets and says what to set.
pub fn advise(workload: &Workload, progress: &mut dyn FnMut(u64)) -> Advice {
    let budgets = default_budgets(workload);
    advise_on(workload, Curves::compute(workload, PolicyKind::ALL, &budgets, progress))
}

/// The best of what was tried. `curves` holds at least one run, budgets in rising order.
pub fn advise_on(workload: &Workload, curves: Curves) -> Advice {
    let policy = best_policy(&curves);
    let runs: Vec<_> = curves.of(&policy).collect();
    let chosen = knee(&runs);
    let run = runs[chosen];
    let max_regions = run.max_regions.min((run.registered_regions_peak * 5 / 4).max(16));
    Advice {
        reasons: reasons(workload, &curves, &policy, chosen),
        snippet: snippet(&policy, run.max_bytes, max_regions),
        max_bytes: run.max_bytes,
        max_regions,
        policy,
        curves,
    }
}

/// Steps that [`advise`] reports.
pub fn steps(workload: &Workload) -> u64 {
    Curves::steps(workload, PolicyKind::ALL, &default_budgets(workload))
}

/// The default unless another is clearly cheaper over all budgets.
fn best_policy(curves: &Curves) -> String {
    let cost = |name: &str| curves.of(name).map(|r| r.cost_ns as f64).sum::<f64>();
    let default = PolicyKind::default().name();
    let tried = curves.policies();
    let best = tried.iter().copied().min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(default);
    let default = if tried.contains(&default) { default } else { best };
    let chosen = if cost(best) < cost(default) * (1.0 - POLICY_GAIN) { best } else { default };
    chosen.to_owned()
}

/// The smallest budget whose cost is within [`ENOUGH`] of what the largest saves.
fn knee(runs: &[&Run]) -> usize {
    let (worst, best) = (runs[0].cost_ns, runs[runs.len() - 1].cost_ns);
    let target = best as f64 + worst.saturating_sub(best) as f64 * ENOUGH + best as f64 * ENOUGH;
    runs.iter().position(|r| r.cost_ns as f64 <= target).unwrap_or(runs.len() - 1)
}

fn reasons(workload: &Workload, curves: &Curves, policy: &str, chosen: usize) -> Vec<String> {
    let runs: Vec<_> = curves.of(policy).collect();
    let run = runs[chosen];
    let mut out = vec![budget_reason(workload, &runs, chosen), policy_reason(curves, policy, chosen)];
    let best = &curves.optimal[chosen];
    let over = run.cost_ns as f64 / best.cost_ns.max(1) as f64;
    out.push(format!(
        "Even a cache that knew the future would pay {} at least; this pays {:.2} times that.",
        time(best.cost_ns),
        over
    ));
    if run.invalidated * 10 > run.misses {
        out.push(format!(
            "{} registrations were lost because their memory changed or was freed. No cache can keep those: \
             reuse buffers, or allocate them from a pool that stays mapped.",
            run.invalidated
        ));
    }
    out.extend(reuse_reason(workload));
    out
}

fn budget_reason(workload: &Workload, runs: &[&Run], chosen: usize) -> String {
    let run = runs[chosen];
    let mut text = format!(
        "The trace asks for {} distinct buffers, {} in all; with room for {} it hits {:.1} % of {} requests \
         and spends {} registering.",
        workload.footprint_regions(),
        bytes(workload.footprint_bytes()),
        bytes(run.max_bytes),
        run.hits as f64 * 100.0 / run.acquires.max(1) as f64,
        run.acquires,
        time(run.cost_ns)
    );
    if let Some(less) = chosen.checked_sub(1).map(|at| runs[at]) {
        _ = write!(text, " With {} it would spend {}", bytes(less.max_bytes), time(less.cost_ns));
        match runs.get(chosen + 1) {
            Some(more) if more.cost_ns < run.cost_ns => {
                let saved = time(run.cost_ns - more.cost_ns);
                _ = write!(text, "; {} would save only {saved} more.", bytes(more.max_bytes));
            }
            Some(more) => _ = write!(text, "; {} would save nothing more.", bytes(more.max_bytes)),
            None => text.push('.'),
        }
    }
    text
}

fn policy_reason(curves: &Curves, policy: &str, chosen: usize) -> String {
    let at = |name: &str| curves.of(name).nth(chosen).map_or(0, |r| r.cost_ns);
    let others = curves.policies().into_iter().filter(|p| *p != policy);
    let others: Vec<_> = others.map(|p| format!("{p} {}", time(at(p)))).collect();
    format!(
        "At that budget the {policy} policy spends {}; the others: {}.",
        time(at(policy)),
        others.join(", ")
    )
}

/// Buffers that are used once gain nothing from a cache.
fn reuse_reason(workload: &Workload) -> Option<String> {
    let mut uses = vec![0u32; workload.objects.len()];
    for step in &workload.steps {
        if let Step::Use(o) | Step::Acquire(o) = step {
            uses[*o as usize] += 1;
        }
    }
    let once = uses.iter().filter(|n| **n == 1).count();
    (once * 2 > uses.len()).then(|| {
        format!(
            "{once} of {} buffers are used once only. If a copy through a registered buffer is cheaper for \
             them than a registration, register from the second use on (Cache::acquire_reused).",
            uses.len()
        )
    })
}

fn snippet(policy: &str, max_bytes: u64, max_regions: u64) -> String {
    format!(
        "pindown::Builder::new(provider)\n    .policy({policy:?}.parse()?)\n    .max_bytes({max_bytes}) // {}\n    \
         .max_regions({max_regions})\n    .build()?",
        bytes(max_bytes)
    )
}

/// For people: `1.5 GiB`.
pub fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 100.0 {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// For people: `1.5 ms`.
pub fn time(ns: u64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
    let (scale, unit) = units.into_iter().find(|(s, _)| ns as f64 >= *s).unwrap_or((1.0, "ns"));
    format!("{:.3} {unit}", ns as f64 / scale).replacen(".000", "", 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Scenario;

    fn advice(name: &str) -> Advice {
        let trace = Scenario::named(name).unwrap().trace();
        let workload = Workload::compile(&trace[..trace.len() / 4], None);
        let total = steps(&workload);
        let mut done = 0;
        let advice = advise(&workload, &mut |n| done += n);
        assert_eq!(done, total, "the progress bar ends full");
        advice
    }

    #[test]
    fn a_loop_needs_room_for_all_of_it() {
        let advice = advice("cyclic");
        let footprint = advice.curves.runs.iter().map(|r| r.max_bytes).max().unwrap();
        assert!(advice.max_bytes * 10 >= footprint * 9, "{advice:?}");
        assert!(advice.snippet.contains(&format!(".max_bytes({})", advice.max_bytes)));
    }

    #[test]
    fn a_moving_working_set_needs_little() {
        let advice = advice("drift");
        let footprint = advice.curves.runs.iter().map(|r| r.max_bytes).max().unwrap();
        assert!(advice.max_bytes * 4 <= footprint * 3, "{advice:?}");
    }

    #[test]
    fn what_is_used_once_is_said_to_be() {
        let once: Vec<_> = (1..200u64).map(|id| (id, id << 21)).collect();
        let trace: Vec<_> = once
            .iter()
            .map(|&(id, addr)| pindown_core::trace::Event {
                t_ns: 0,
                op: pindown_core::trace::Op::Acquire { id, addr, len: 4096, access: Default::default() },
            })
            .collect();
        let advice = advise(&Workload::compile(&trace, None), &mut |_| ());
        assert!(advice.reasons.iter().any(|r| r.contains("used once only")), "{:?}", advice.reasons);
    }

    #[test]
    fn figures_are_readable() {
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(bytes(12), "12 B");
        assert_eq!(time(16_000), "16 µs");
        assert_eq!(time(1_250_000), "1.250 ms");
    }
}
