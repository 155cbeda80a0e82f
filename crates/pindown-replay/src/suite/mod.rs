//! The trace suite: sixteen generated workloads, each with its story.

mod apps;
mod bounds;
mod classic;
mod tape;

pub use bounds::{Least, Share, compute_table};

use pindown_core::trace::Event;

use crate::bound::Draws;

/// One generated trace.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Name for the command line and files.
    pub name: &'static str,
    /// What it stands for.
    pub story: &'static str,
    /// Policies were not tuned on it.
    pub held_out: bool,
    generate: fn(&mut tape::Tape),
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scenario").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Scenario {
    /// The trace: the same on every machine.
    pub fn trace(&self) -> Vec<Event> {
        self.trace_and_draws().0
    }

    /// The trace, and which of its requests are independent draws.
    pub fn trace_and_draws(&self) -> (Vec<Event>, Draws) {
        let mut tape = tape::Tape::default();
        (self.generate)(&mut tape);
        tape.into_parts()
    }

    /// The scenario of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SUITE.iter().find(|s| s.name == name)
    }
}

const fn used(name: &'static str, story: &'static str, generate: fn(&mut tape::Tape)) -> Scenario {
    Scenario { name, story, held_out: false, generate }
}

const fn held_out(name: &'static str, story: &'static str, generate: fn(&mut tape::Tape)) -> Scenario {
    Scenario { name, story, held_out: true, generate }
}

/// All of them.
pub const SUITE: &[Scenario] = &[
    used("cyclic", "11,000 equal buffers, over and over in the same order", classic::cyclic),
    used("cyclic-mixed", "the same with sizes from 4 KiB to 8 MiB", classic::cyclic_mixed),
    used("zipf", "a few buffers are used most (zipf 0.99 over 10,000)", classic::zipf),
    used("zipf-scan", "zipf, and in the middle 2,500 other buffers once each", classic::zipf_scan),
    used("phases", "every so often the program moves on to other buffers for good", classic::phases),
    used("mpi", "halo exchange each step, collectives through temporaries that are freed", apps::mpi),
    used("ring", "a circular buffer larger than the budget, and a few hot control buffers", apps::ring),
    used("kv-cache", "an inference server: sequences grow by blocks, decode over them, end", apps::kv_cache),
    used("storage", "a log written round and round beside zipf reads", apps::storage),
    used("stack", "temporaries as on a stack: allocated, used, freed in reverse", apps::stack),
    held_out("uniform", "every buffer is as likely as every other", classic::uniform),
    held_out("sawtooth", "forwards, then backwards, over the same buffers", classic::sawtooth),
    held_out("drift", "a working set that moves slowly", classic::drift),
    held_out("training", "gradient buckets each step, all parameters at each checkpoint", apps::training),
    held_out("samples", "mini-batches by power law over a large table, buffers of mixed size", apps::samples),
    held_out("small-large", "small hot messages among large cold ones", apps::small_large),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    #[test]
    fn every_trace_is_of_a_useful_size() {
        for scenario in SUITE {
            let trace = scenario.trace();
            let workload = Workload::compile(&trace, None);
            assert!((200_000..=700_000).contains(&trace.len()), "{}: {}", scenario.name, trace.len());
            assert!((1000..60_000).contains(&workload.footprint_regions()), "{}", scenario.name);
            assert_eq!(workload.skipped, 0);
            assert!(Scenario::named(scenario.name).is_some());
        }
    }

    #[test]
    fn a_trace_is_the_same_every_time() {
        let scenario = Scenario::named("mpi").unwrap();
        assert_eq!(scenario.trace(), scenario.trace());
    }
}
