//! [`Curves`]: every policy at every budget, beside the bound.

use pindown_core::PolicyKind;

use crate::bound::{Bound, bound};
use crate::sim::{Budget, Run, simulate};
use crate::workload::Workload;

/// All runs of a replay.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Curves {
    /// One a policy and budget.
    pub runs: Vec<Run>,
    /// One a budget.
    pub optimal: Vec<Bound>,
}

/// Budgets at these shares of what all distinct memory takes, in percent.
const SHARES: [u64; 8] = [5, 10, 20, 35, 50, 70, 90, 100];

/// A spread of byte budgets for a workload, smallest first, each at least its largest registration.
pub fn default_budgets(workload: &Workload) -> Vec<Budget> {
    let largest = workload.objects.iter().map(|o| o.range.len_bytes() as u64).max().unwrap_or(4096);
    let footprint = workload.footprint_bytes();
    let mut bytes: Vec<_> = SHARES.iter().map(|s| (footprint * s / 100).max(largest)).collect();
    bytes.dedup();
    bytes.into_iter().map(|max_bytes| Budget { max_bytes, max_regions: u64::MAX }).collect()
}

impl Curves {
    /// Steps that [`compute`](Self::compute) reports to its progress function in all.
    pub fn steps(workload: &Workload, policies: &[PolicyKind], budgets: &[Budget]) -> u64 {
        (policies.len() as u64 + 1) * budgets.len() as u64 * workload.steps.len() as u64
    }

    /// Replays everything.
    pub fn compute(
        workload: &Workload,
        policies: &[PolicyKind],
        budgets: &[Budget],
        progress: &mut dyn FnMut(u64),
    ) -> Self {
        let (mut runs, mut optimal) = (Vec::new(), Vec::new());
        for budget in budgets {
            runs.extend(policies.iter().map(|kind| simulate(workload, *kind, *budget, progress)));
            optimal.push(bound(workload, *budget));
            progress(workload.steps.len() as u64);
        }
        Self { runs, optimal }
    }

    /// The runs of one policy, smallest budget first.
    pub fn of<'a>(&'a self, policy: &'a str) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |r| r.policy == policy)
    }

    /// Names of the policies, in order.
    pub fn policies(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !names.contains(&run.policy.as_str()) {
                names.push(&run.policy);
            }
        }
        names
    }
}
