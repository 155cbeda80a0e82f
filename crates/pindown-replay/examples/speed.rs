//! Events a second that each policy replays, on its own: `speed [TRACE]`.

use std::time::Instant;

use pindown_core::PolicyKind;
use pindown_replay::{Budget, Workload, simulate, suite::SUITE};

fn main() {
    let only = std::env::args().nth(1);
    for s in SUITE.iter().filter(|s| only.as_ref().is_none_or(|o| s.name == o)) {
        let workload = Workload::compile(&s.trace(), None);
        print!("{:14}", s.name);
        for percent in [25, 50, 91] {
            let budget =
                Budget { max_bytes: workload.footprint_bytes() * percent / 100, max_regions: u64::MAX };
            for kind in PolicyKind::ALL {
                let rate = |_| {
                    let begin = Instant::now();
                    simulate(&workload, *kind, budget, &mut |_| ());
                    workload.events as f64 / begin.elapsed().as_secs_f64() / 1e6
                };
                print!(" {:6.1}", (0..5).map(rate).fold(0.0, f64::max));
            }
        }
        println!("   million events/s ({:?} at 25, 50, 91 %)", PolicyKind::ALL);
    }
}
