//! What the policies promise, on the suite. The whole table: `cargo run --release -p pindown-replay
//! --example suite`.

use pindown_core::PolicyKind;
use pindown_replay::{Budget, Run, Workload, bound::bound, simulate, suite};

fn workload(name: &str) -> Workload {
    Workload::compile(&suite::Scenario::named(name).expect("in the suite").trace(), None)
}

fn regions(n: u64) -> Budget {
    Budget { max_bytes: u64::MAX, max_regions: n }
}

fn run(workload: &Workload, kind: PolicyKind, budget: Budget) -> Run {
    simulate(workload, kind, budget, &mut |_| ())
}

#[test]
fn a_loop_slightly_too_large_misses_little_more_than_it_must() {
    let looped = workload("cyclic");
    let best = bound(&looped, regions(10_000));
    assert!(best.exact);
    let adaptive = run(&looped, PolicyKind::Adaptive, regions(10_000));
    assert!(
        adaptive.misses as f64 <= 1.5 * best.misses as f64,
        "{} misses, at best {}",
        adaptive.misses,
        best.misses
    );
    let lru = run(&looped, PolicyKind::Lru, regions(10_000));
    assert_eq!(lru.hits, 0, "the case that LRU fails");
}

#[test]
fn a_scan_costs_little_at_up_to_half_the_footprint() {
    let (alone, scanned) = (workload("zipf"), workload("zipf-scan"));
    for percent in [25, 50] {
        let budget = regions(alone.footprint_regions() * percent / 100);
        let (without, with) =
            (run(&alone, PolicyKind::Adaptive, budget), run(&scanned, PolicyKind::Adaptive, budget));
        let ratio = with.misses as f64 / without.misses as f64;
        assert!(ratio <= 1.3, "{percent} %: {} misses without, {} with", without.misses, with.misses);
    }
}

/// Cost of the default over the bound, and over LRU's, at each budget of the suite.
fn measured(scenario: &suite::Scenario) -> Vec<(f64, f64)> {
    let workload = Workload::compile(&scenario.trace(), None);
    let ratios = |share: suite::Share| {
        let budget = share.of(&workload);
        let (adaptive, lru) =
            (run(&workload, PolicyKind::default(), budget), run(&workload, PolicyKind::Lru, budget));
        assert!(
            adaptive.registered_bytes_peak <= budget.max_bytes
                && lru.registered_bytes_peak <= budget.max_bytes
        );
        let least = suite::Least::committed(scenario, share).expect("in the table").ns();
        (adaptive.cost_ns as f64 / least as f64, adaptive.cost_ns as f64 / lru.cost_ns as f64)
    };
    // By regions too with PINDOWN_LONG.
    let long = std::env::var_os("PINDOWN_LONG").is_some();
    suite::Share::all().filter(|share| long || !share.by_regions).map(ratios).collect()
}

fn mean(ratios: &[(f64, f64)]) -> f64 {
    ratios.iter().map(|r| r.0).sum::<f64>() / ratios.len() as f64
}

#[test]
fn the_default_is_near_the_bound_and_never_much_worse_than_lru() {
    let (mut all, mut unseen) = (Vec::new(), Vec::new());
    for scenario in suite::SUITE {
        let ratios = measured(scenario);
        for (_, against_lru) in &ratios {
            assert!(*against_lru <= 1.05, "{}: {ratios:?}", scenario.name);
        }
        println!("{:14} {:.3}", scenario.name, mean(&ratios));
        unseen.extend(ratios.iter().copied().filter(|_| scenario.held_out));
        all.extend(ratios);
    }
    println!("all {:.3}, held out {:.3}", mean(&all), mean(&unseen));
    assert!(mean(&all) <= 1.35 && mean(&unseen) <= 1.35, "{} {}", mean(&all), mean(&unseen));
}

#[test]
fn on_recorded_runs_the_default_is_no_worse_than_lru() {
    for name in ["perf-remap", "perf-mixed"] {
        let file = format!("{}/traces/{name}.trace", env!("CARGO_MANIFEST_DIR"));
        let trace = pindown_replay::read::read(file.as_ref()).expect("recorded");
        let workload = Workload::compile(&trace, None);
        assert!(workload.requests() > 2000 && workload.skipped == 0, "{name}");
        for percent in [25, 50, 91] {
            let max_bytes = workload.footprint_bytes() * percent / 100;
            let budget = Budget { max_bytes, max_regions: u64::MAX };
            let (adaptive, lru) =
                (run(&workload, PolicyKind::default(), budget), run(&workload, PolicyKind::Lru, budget));
            assert!(
                adaptive.cost_ns as f64 <= 1.05 * lru.cost_ns as f64,
                "{name} at {percent} %: {adaptive:?} {lru:?}"
            );
        }
    }
}
