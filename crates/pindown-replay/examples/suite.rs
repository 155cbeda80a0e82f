//! Prints each policy's cost over the suite, relative to the bound, as a table.

use std::time::Instant;

use pindown_core::PolicyKind;
use pindown_replay::{Budget, Workload, bound::bound, simulate, suite::SUITE};

fn main() {
    let only = std::env::args().nth(1);
    let mut sums = vec![(0.0, 0.0f64); PolicyKind::ALL.len()];
    let mut count = 0.0;
    print!("{:14} {:>5} {:>10}", "trace", "room", "bound ms");
    PolicyKind::ALL.iter().for_each(|k| print!(" {:>9}", k.name()));
    println!("  Mev/s");
    for s in SUITE.iter().filter(|s| only.as_ref().is_none_or(|o| s.name == o)) {
        let workload = Workload::compile(&s.trace(), None);
        for (percent, by_regions) in [25, 50, 91].into_iter().flat_map(|p| [(p, false), (p, true)]) {
            let of = |n: u64| n * percent / 100;
            let budget = if by_regions {
                Budget { max_bytes: u64::MAX, max_regions: of(workload.footprint_regions()) }
            } else {
                Budget { max_bytes: of(workload.footprint_bytes()), max_regions: u64::MAX }
            };
            let best = bound(&workload, budget);
            print!(
                "{:14} {percent:3}%{} {:10.1}",
                s.name,
                if by_regions { 'r' } else { 'b' },
                best.cost_ns as f64 / 1e6
            );
            let mut rates = Vec::new();
            let lru = simulate(&workload, PolicyKind::Lru, budget, &mut |_| ());
            for (kind, sum) in PolicyKind::ALL.iter().zip(&mut sums) {
                let begin = Instant::now();
                let run = simulate(&workload, *kind, budget, &mut |_| ());
                rates.push(workload.events as f64 / begin.elapsed().as_secs_f64() / 1e6);
                let ratio = run.cost_ns as f64 / best.cost_ns as f64;
                *sum = (sum.0 + ratio, sum.1.max(run.cost_ns as f64 / lru.cost_ns as f64));
                print!(" {ratio:9.3}");
            }
            rates.iter().for_each(|r| print!(" {r:5.1}"));
            println!("{}", if s.held_out { " held out" } else { "" });
            count += 1.0;
        }
    }
    print!("{:31}", "mean");
    sums.iter().for_each(|s| print!(" {:9.3}", s.0 / count));
    print!("\n{:31}", "worst against lru");
    sums.iter().for_each(|s| print!(" {:9.3}", s.1));
    println!();
}
