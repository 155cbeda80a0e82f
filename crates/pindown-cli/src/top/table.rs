//! The table of caches.

use pindown::export::Exported;
use pindown_replay::advise::bytes;

use crate::ui::{Colour, Palette, count};

/// Columns of the full table; a narrower window gets what matters most.
const FULL_COLUMNS: usize = 122;
const HEAD: &str = "    PID program          provider  monitor   requests   hit %  miss/tick  inval.  held stale   registered       of  queued";
const NARROW_HEAD: &str = "    PID program     requests   hit %  registered       of";

/// Lines; rates are since `before`.
pub(super) fn text(seen: &[Exported], before: &[Exported], palette: Palette, columns: usize) -> Vec<String> {
    let is_narrow = columns < FULL_COLUMNS;
    let mut lines =
        vec![palette.bold(&format!("pindown: {} caches      q: quit", seen.len())), String::new()];
    lines.push(palette.bold(if is_narrow { NARROW_HEAD } else { HEAD }));
    if seen.is_empty() {
        lines.push(palette.paint(
            Colour::Grey,
            "no running program of yours uses pindown (with its worker thread, and PINDOWN_EXPORT not 0)",
        ));
    }
    let line = |e| if is_narrow { narrow_line(e, palette) } else { line(e, before, palette) };
    lines.extend(seen.iter().map(line));
    lines
}

fn line(e: &Exported, before: &[Exported], palette: Palette) -> String {
    let s = &e.stats;
    let old = before.iter().find(|b| (b.pid, b.cache) == (e.pid, e.cache));
    let misses = old.map_or("-".to_owned(), |b| count(s.misses.saturating_sub(b.stats.misses)));
    format!(
        "{:>7} {:<16} {:<9} {:<9} {:>8}  {}  {misses:>9}  {:>6}  {:>10}  {:>11} {:>8}  {:>6}",
        e.pid,
        shortened(&e.command, 16),
        shortened(&e.provider, 9),
        shortened(&e.monitor, 9),
        count(s.gets),
        hits(e, palette),
        count(s.invalidated),
        count(s.regions_draining),
        bytes(s.bytes_registered),
        limit(e),
        count(s.regions_pending)
    )
}

fn narrow_line(e: &Exported, palette: Palette) -> String {
    let (s, program) = (&e.stats, shortened(&e.command, 11));
    let (gets, hits, registered) = (count(s.gets), hits(e, palette), bytes(s.bytes_registered));
    format!("{:>7} {program:<11} {gets:>8}  {hits}  {registered:>10} {:>8}", e.pid, limit(e))
}

fn hits(e: &Exported, palette: Palette) -> String {
    let percent = e.stats.hits as f64 * 100.0 / e.stats.gets.max(1) as f64;
    palette.paint(hit_colour(percent, e.stats.gets), &format!("{percent:6.1}"))
}

/// The bound, or what the system taught since.
fn limit(e: &Exported) -> String {
    let now = if e.stats.budget_bytes > 0 { e.stats.budget_bytes.min(e.max_bytes) } else { e.max_bytes };
    if now >= 1 << 60 { "no limit".to_owned() } else { bytes(now) }
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

    /// Without colours.
    fn plain(line: &str) -> String {
        let mut parts = line.split('\x1b');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
    }

    #[test]
    fn a_narrow_window_shows_what_is_registered() {
        let mut seen = Exported::default();
        (seen.pid, seen.command, seen.max_bytes) = (4_000_000, "a_program_with_a_name".into(), 64 << 20);
        (seen.stats.gets, seen.stats.hits, seen.stats.bytes_registered) = (1000, 990, 12 << 20);
        let shown = |columns| {
            let lines = text(std::slice::from_ref(&seen), &[], Palette::for_stdout(), columns);
            lines.iter().map(|l| plain(l)).collect::<Vec<_>>()
        };
        let lines = shown(60);
        assert!(lines.iter().all(|l| l.chars().count() <= 60), "{lines:?}");
        assert!(lines[3].contains("99.0") && lines[3].contains("12.0 MiB"), "{lines:?}");
        let wide = shown(FULL_COLUMNS);
        assert!(wide[3].chars().count() <= FULL_COLUMNS && wide[2].ends_with("queued"), "{wide:?}");
    }

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
