//! Prints each policy's cost over the suite, relative to the committed bounds, as a table:
//! `suite [NAME]`. `suite --write` finds the bounds anew (a minute).

use pindown_core::PolicyKind;
use pindown_replay::suite::{Least, SUITE, Share, compute_table};
use pindown_replay::{Workload, simulate};

fn main() -> std::io::Result<()> {
    let only = std::env::args().nth(1);
    if only.as_deref() == Some("--write") {
        return std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/traces/bounds.tsv"), compute_table());
    }
    let mut sums = vec![(0.0, 0.0f64); PolicyKind::ALL.len()];
    let (mut count, mut offline) = (0.0, 0.0);
    print!("{:14} {:>5} {:>10}", "trace", "room", "bound ms");
    PolicyKind::ALL.iter().for_each(|k| print!(" {:>9}", k.name()));
    println!("   (the default over the offline bound alone)");
    for s in SUITE.iter().filter(|s| only.as_ref().is_none_or(|o| s.name == o)) {
        let workload = Workload::compile(&s.trace(), None);
        for share in Share::all() {
            let least = Least::committed(s, share).unwrap_or_else(|| Least::compute(s, share));
            let unit = if share.by_regions { 'r' } else { 'b' };
            print!("{:14} {:3}%{unit} {:10.1}", s.name, share.percent, least.ns() as f64 / 1e6);
            let cost = |kind| simulate(&workload, kind, share.of(&workload), &mut |_| ()).cost_ns as f64;
            let lru = cost(PolicyKind::Lru);
            for (kind, sum) in PolicyKind::ALL.iter().zip(&mut sums) {
                let cost = cost(*kind);
                let ratio = cost / least.ns() as f64;
                *sum = (sum.0 + ratio, sum.1.max(cost / lru));
                print!(" {ratio:9.3}");
            }
            let alone = cost(PolicyKind::default()) / least.offline_ns as f64;
            println!("   ({alone:.3}){}", if s.held_out { " held out" } else { "" });
            (count, offline) = (count + 1.0, offline + alone);
        }
    }
    print!("{:31}", "mean");
    sums.iter().for_each(|s| print!(" {:9.3}", s.0 / count));
    print!("   ({:.3})\n{:31}", offline / count, "worst against lru");
    sums.iter().for_each(|s| print!(" {:9.3}", s.1));
    println!();
    Ok(())
}
