//! What a soak says at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Args, Soak};
use crate::exit::{CliError, Verdict};
use crate::ui::{Colour, Palette};

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

pub(super) fn hang(soak: &Soak) {
    eprintln!("pindown soak: no operation for {:?}: something hangs", super::HANG);
    eprintln!("  {:?}\n  {:?}", soak.tally, soak.cache.stats());
}

/// Closes the cache, and compares registrations with deregistrations.
pub(super) fn finish(soak: Arc<Soak>, args: &Args, took: Duration) -> Result<Verdict, CliError> {
    let monitor = soak.cache.monitor().name();
    let cache = soak.cache.clone();
    let closed = cache.clone().close(Duration::from_secs(5));
    let (stats, tally) = (cache.stats(), &soak.tally);
    let leaked = stats.registrations - stats.deregistrations;
    let (stale, errors) = (get(&tally.stale), get(&tally.errors));
    let good = stale == 0 && errors == 0 && leaked == 0 && closed.is_ok();
    if args.json {
        let json = serde_json::json!({
            "monitor": monitor, "seed": args.seed, "seconds": took.as_secs_f64(),
            "ops": get(&tally.ops), "transfers": get(&tally.transfers),
            "mutations": get(&tally.mutations), "forks": get(&tally.forks),
            "refused": get(&tally.refused), "split": get(&tally.split), "stale": stale, "errors": errors, "leaked": leaked,
            "gets": stats.gets, "hits": stats.hits, "registrations": stats.registrations,
            "deregistrations": stats.deregistrations, "invalidated": stats.invalidated,
            "raced": stats.raced, "uncached": stats.uncached, "overflows": stats.overflows,
            "evictions": stats.evictions,
        });
        println!("{json}");
    } else {
        table(&soak, args, took, leaked, good);
    }
    Ok(if good { Verdict::Good } else { Verdict::Bad })
}

fn table(soak: &Soak, args: &Args, took: Duration, leaked: u64, good: bool) {
    let (palette, tally, stats) = (Palette::for_stdout(), &soak.tally, soak.cache.stats());
    let ops = get(&tally.ops);
    let rate = ops as f64 / took.as_secs_f64();
    println!(
        "soak: monitor {}, seed {}, {:.1} s",
        soak.cache.monitor().name(),
        args.seed,
        took.as_secs_f64()
    );
    let rows = [
        ("operations", format!("{ops} ({rate:.0}/s)")),
        ("transfers compared", get(&tally.transfers).to_string()),
        ("changes of mappings", get(&tally.mutations).to_string()),
        ("forks", get(&tally.forks).to_string()),
        ("hits / gets", format!("{} / {}", stats.hits, stats.gets)),
        ("registered", stats.registrations.to_string()),
        ("deregistered", stats.deregistrations.to_string()),
        ("made stale", stats.invalidated.to_string()),
        ("changed while registering", stats.raced.to_string()),
        ("uncached", stats.uncached.to_string()),
        ("refused by the kernel", get(&tally.refused).to_string()),
        ("mremap met pieces", get(&tally.split).to_string()),
    ];
    for (name, value) in rows {
        println!("  {name:<26} {value}");
    }
    let (stale, errors) = (get(&tally.stale), get(&tally.errors));
    let verdict = format!("{stale} stale, {leaked} leaked, {errors} errors");
    println!("  {}", palette.paint(if good { Colour::Green } else { Colour::Red }, &verdict));
}
