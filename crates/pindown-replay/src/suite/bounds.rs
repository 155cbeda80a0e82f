//! The bounds of the suite, committed: finding them takes longer than all replays together.
//! `cargo run --release -p pindown-replay --example suite -- --write` finds them anew.

use std::fmt::Write;

use super::{SUITE, Scenario};
use crate::bound::{bound, expected_cost_ns};
use crate::{Budget, Workload};

const TABLE: &str = include_str!("../../traces/bounds.tsv");

/// A budget at which the suite is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Of the footprint.
    pub percent: u64,
    /// Of its number of regions rather than of its bytes.
    pub by_regions: bool,
}

impl Share {
    /// All of them: a quarter, half and most of the footprint, once as bytes and once as regions.
    pub fn all() -> impl Iterator<Item = Self> {
        [25, 50, 91]
            .into_iter()
            .flat_map(|percent| [false, true].map(|by_regions| Self { percent, by_regions }))
    }

    /// The budget for `workload`.
    pub fn of(self, workload: &Workload) -> Budget {
        let share = |n: u64| n * self.percent / 100;
        if self.by_regions {
            Budget { max_bytes: u64::MAX, max_regions: share(workload.footprint_regions()) }
        } else {
            Budget { max_bytes: share(workload.footprint_bytes()), max_regions: u64::MAX }
        }
    }

    fn key(self, scenario: &str) -> String {
        format!("{scenario}\t{}\t{}\t", self.percent, if self.by_regions { "regions" } else { "bytes" })
    }
}

/// The least that a scenario costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Least {
    /// With foresight, in nanoseconds ([`bound`]).
    pub offline_ns: u64,
    /// Expected without foresight, in nanoseconds ([`expected_cost_ns`]); 0 where not known.
    pub expected_ns: u64,
}

impl Least {
    /// Both are bounds: the greater counts.
    pub fn ns(self) -> u64 {
        self.offline_ns.max(self.expected_ns)
    }

    /// The committed one.
    pub fn committed(scenario: &Scenario, share: Share) -> Option<Self> {
        let key = share.key(scenario.name);
        let rest = TABLE.lines().find_map(|line| line.strip_prefix(&key))?;
        let (offline, expected) = rest.split_once('\t')?;
        Some(Self { offline_ns: offline.parse().ok()?, expected_ns: expected.parse().ok()? })
    }

    /// Found anew: takes seconds.
    pub fn compute(scenario: &Scenario, share: Share) -> Self {
        let (trace, draws) = scenario.trace_and_draws();
        let workload = Workload::compile(&trace, None);
        let budget = share.of(&workload);
        let expected_ns = match draws.laws.is_empty() {
            true => 0,
            false => expected_cost_ns(&workload, &draws, budget) as u64,
        };
        Self { offline_ns: bound(&workload, budget).cost_ns, expected_ns }
    }
}

/// The table to commit.
pub fn compute_table() -> String {
    let mut out = "scenario\tpercent\tof\toffline_ns\texpected_ns\n".to_owned();
    for scenario in SUITE {
        for share in Share::all() {
            let least = Least::compute(scenario, share);
            _ = writeln!(out, "{}{}\t{}", share.key(scenario.name), least.offline_ns, least.expected_ns);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_is_what_is_found() {
        for (name, percent, by_regions) in
            [("uniform", 50, true), ("ring", 91, false), ("samples", 25, false)]
        {
            let (scenario, share) = (Scenario::named(name).unwrap(), Share { percent, by_regions });
            let (found, committed) =
                (Least::compute(scenario, share), Least::committed(scenario, share).unwrap());
            // Sums of floating point numbers: the last digits are the machine's.
            let close = |a: u64, b: u64| a.abs_diff(b) <= b / 10_000;
            assert!(close(found.offline_ns, committed.offline_ns), "{name}: {found:?} {committed:?}");
            assert!(close(found.expected_ns, committed.expected_ns), "{name}: {found:?} {committed:?}");
        }
    }
}
