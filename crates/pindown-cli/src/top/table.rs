//! The table of caches.

use pindown::export::Exported;
use pindown_replay::advise::bytes;

use crate::ui::{Colour, Palette, count};

/// Lines; rates are since `before`.
pub(super) fn text(seen: &[Exported], before: &[Exported], palette: Palette) -> Vec<String> {
    let head = "    PID program          provider  monitor   requests   hit %  miss/tick  inval.  held stale   registered       of  queued";
    let mut lines =
        vec![palette.bold(&format!("pindown: {} caches      q: quit", seen.len())), String::new()];
    lines.push(palette.bold(head));
    if seen.is_empty() {
        lines.push(palette.paint(
            Colour::Grey,
            "no running program of yours uses pindown (with its worker thread, and PINDOWN_EXPORT not 0)",
        ));
    }
    lines.extend(seen.iter().map(|e| line(e, before, palette)));
    lines
}

fn line(e: &Exported, before: &[Exported], palette: Palette) -> String {
    let s = &e.stats;
    let old = before.iter().find(|b| (b.pid, b.cache) == (e.pid, e.cache));
    let misses = old.map_or("-".to_owned(), |b| count(s.misses.saturating_sub(b.stats.misses)));
    let hit_percent = s.hits as f64 * 100.0 / s.gets.max(1) as f64;
    let hits = palette.paint(hit_colour(hit_percent, s.gets), &format!("{hit_percent:6.1}"));
    let limit = if e.max_bytes >= 1 << 60 { "no limit".to_owned() } else { bytes(e.max_bytes) };
    format!(
        "{:>7} {:<16} {:<9} {:<9} {:>8}  {hits}  {misses:>9}  {:>6}  {:>10}  {:>11} {limit:>8}  {:>6}",
        e.pid,
        shortened(&e.command, 16),
        shortened(&e.provider, 9),
        shortened(&e.monitor, 9),
        count(s.gets),
        count(s.invalidated),
        count(s.regions_draining),
        bytes(s.bytes_registered),
        count(s.regions_pending)
    )
}

/// A cache that hardly hits is of no use: that is what people want to see.
fn hit_colour(percent: f64, gets: u64) -> Colour {
    match percent {
        _ if gets < 100 => Colour::Grey,
        90.0.. => Colour::Green,
        50.0.. => Colour::Yellow,
        _ => Colour::Red,
    }
}

/// Without control characters: the name is another program's.
fn shortened(text: &str, most: usize) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(most).collect()
}

pub(super) fn json(seen: &[Exported]) -> String {
    let caches: Vec<_> = seen
        .iter()
        .map(|e| {
            let s = &e.stats;
            serde_json::json!({
                "pid": e.pid, "cache": e.cache, "command": e.command, "provider": e.provider,
                "monitor": e.monitor, "policy": e.policy, "max_bytes": e.max_bytes,
                "max_regions": e.max_regions, "gets": s.gets, "hits": s.hits, "misses": s.misses,
                "registrations": s.registrations, "evictions": s.evictions, "invalidated": s.invalidated,
                "uncached": s.uncached, "bytes_registered": s.bytes_registered,
                "regions_registered": s.regions_registered, "regions_draining": s.regions_draining,
                "regions_pending": s.regions_pending,
            })
        })
        .collect();
    serde_json::json!({ "caches": caches }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_programs_cannot_draw() {
        assert_eq!(shortened("a\x1b[2Jb\ncdefghijklmnop", 8), "a?[2Jb?c");
    }

    #[test]
    fn a_cache_that_never_hits_is_red_once_there_is_something_to_judge() {
        assert!(matches!(hit_colour(0.0, 1000), Colour::Red));
        assert!(matches!(hit_colour(0.0, 10), Colour::Grey));
        assert!(matches!(hit_colour(99.0, 1000), Colour::Green));
    }
}
