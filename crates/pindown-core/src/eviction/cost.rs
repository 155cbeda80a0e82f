//! [`CostModel`]: what a registration costs on this device, learnt.

/// By the length's power of two: from one page to 2^40.
const CLASSES: usize = 41;
/// Weight of the latest registration in the mean.
const WEIGHT: f64 = 1.0 / 8.0;
/// What took longer than this times the mean was disturbed (the thread was preempted, a fault went
/// to disk): it counts as this much.
const OUTLIER: f64 = 4.0;

/// Moving means of the measured cost for each size class: of memory that is registered for the first
/// time (cold: its pages may have to be made first) and of memory that was registered before (warm).
/// Recent registrations weigh most, so the means follow how much is registered already, which changes
/// slowly against them. What eviction compares is what registering *again* costs.
#[derive(Debug)]
pub(crate) struct CostModel {
    cold: [Mean; CLASSES],
    warm: [Mean; CLASSES],
}

/// Nanoseconds; zero: nothing measured yet.
#[derive(Clone, Copy, Debug, Default)]
struct Mean(f64);

impl Mean {
    fn learn(&mut self, cost_ns: u64) {
        if self.0 == 0.0 {
            self.0 = cost_ns.max(1) as f64;
        } else {
            let counted = (cost_ns as f64).min(self.0 * OUTLIER);
            self.0 += (counted - self.0) * WEIGHT;
        }
    }
}

impl Default for CostModel {
    fn default() -> Self {
        Self { cold: [Mean::default(); CLASSES], warm: [Mean::default(); CLASSES] }
    }
}

impl CostModel {
    /// A registration of `pages` took `cost_ns`; returns what registering as much again is expected to.
    pub(crate) fn learn(&mut self, pages: u64, cost_ns: u64, is_warm: bool) -> u64 {
        let class = (pages.max(1).ilog2() as usize).min(CLASSES - 1);
        if is_warm { &mut self.warm[class] } else { &mut self.cold[class] }.learn(cost_ns);
        self.again_ns(class)
    }

    fn again_ns(&self, class: usize) -> u64 {
        let known = if self.warm[class].0 > 0.0 { self.warm[class] } else { self.cold[class] };
        (known.0 as u64).max(1)
    }

    /// What registering `pages` again is expected to cost.
    #[cfg(test)]
    pub(crate) fn expected_ns(&self, pages: u64) -> u64 {
        self.again_ns((pages.max(1).ilog2() as usize).min(CLASSES - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_learnt_apart_and_one_bad_measurement_does_little() {
        let mut model = CostModel::default();
        for _ in 0..50 {
            model.learn(1, 16_000, false);
            model.learn(1024, 400_000, false);
        }
        assert_eq!((model.learn(1, 16_000, false), model.learn(1500, 400_000, false)), (16_000, 400_000));
        let after = model.learn(1, 50_000_000, false);
        assert!(after < 23_000, "{after}");
    }

    #[test]
    fn what_counts_is_registering_again() {
        let mut model = CostModel::default();
        assert_eq!(model.learn(256, 900_000, false), 900_000, "nothing else is known yet");
        assert_eq!(model.learn(256, 90_000, true), 90_000);
        assert_eq!(model.learn(256, 900_000, false), 90_000, "pages that must be made first tell nothing");
    }

    #[test]
    fn follows_a_device_that_becomes_slow() {
        let mut model = CostModel::default();
        model.learn(16, 70_000, true);
        let mut expected = 0;
        for _ in 0..60 {
            expected = model.learn(16, 2_500_000, true);
        }
        assert!((2_400_000..=2_500_000).contains(&expected), "{expected}");
    }
}
