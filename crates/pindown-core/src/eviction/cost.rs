//! [`CostModel`]: what a registration costs on this device, learnt.

/// By the length's power of two: from one page to 2^40.
const CLASSES: usize = 41;
/// Weight of the latest registration in the mean.
const WEIGHT: f64 = 1.0 / 8.0;
/// What took longer than this times the mean was disturbed (the thread was preempted, a fault went
/// to disk): it counts as this much.
const OUTLIER: f64 = 4.0;

/// A moving mean of the measured cost for each size class. Recent registrations weigh most, so the
/// mean follows what is registered already and whether pages are warm: both change slowly against
/// it, and eviction compares what re-registering costs *now*.
#[derive(Debug)]
pub(crate) struct CostModel {
    /// Nanoseconds; zero: none of this size yet.
    mean_ns: [f64; CLASSES],
}

impl Default for CostModel {
    fn default() -> Self {
        Self { mean_ns: [0.0; CLASSES] }
    }
}

impl CostModel {
    /// A registration of `pages` took `cost_ns`; returns what the next is expected to.
    pub(crate) fn learn(&mut self, pages: u64, cost_ns: u64) -> u64 {
        let mean = &mut self.mean_ns[(pages.max(1).ilog2() as usize).min(CLASSES - 1)];
        if *mean == 0.0 {
            *mean = cost_ns.max(1) as f64;
        } else {
            let counted = (cost_ns as f64).min(*mean * OUTLIER);
            *mean += (counted - *mean) * WEIGHT;
        }
        (*mean as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_learnt_apart_and_one_bad_measurement_does_little() {
        let mut model = CostModel::default();
        for _ in 0..50 {
            model.learn(1, 16_000);
            model.learn(1024, 400_000);
        }
        assert_eq!((model.learn(1, 16_000), model.learn(1500, 400_000)), (16_000, 400_000));
        let after = model.learn(1, 50_000_000);
        assert!(after < 23_000, "{after}");
    }

    #[test]
    fn follows_a_device_that_becomes_slow() {
        let mut model = CostModel::default();
        model.learn(16, 70_000);
        let mut expected = 0;
        for _ in 0..60 {
            expected = model.learn(16, 2_500_000);
        }
        assert!((2_400_000..=2_500_000).contains(&expected), "{expected}");
    }
}
