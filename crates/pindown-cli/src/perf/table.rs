//! The result for people.

use std::fmt::Write;

use super::plan::size_name;
use super::report::{Report, Run};
use super::{Churn, Mode};
use crate::ui::{Colour, Palette, count, duration, wrapped};

const TITLES: &str = "size  churn  mode             GB/s                p50      p99     hits   misses  invalid.  uncached  stale";
/// For 80 columns.
const NARROW_TITLES: &str = "size  churn  mode             GB/s       p50      p99     hits   misses  stale";

/// The whole text, for a terminal of so many columns.
pub(crate) fn render(report: &Report, registers: &str, palette: Palette, columns: usize) -> String {
    let mut out = String::new();
    let threads = report.runs.first().map_or(1, |run| run.threads);
    let head = format!(
        "pindown perf: {} {registers}, monitor {}, Linux {}, {threads} thread{}",
        report.provider,
        report.monitor,
        report.kernel,
        if threads == 1 { "" } else { "s" }
    );
    let _ = writeln!(out, "{}\n", palette.bold(&wrapped(&head, columns)));
    let narrow = columns < TITLES.len();
    let _ = writeln!(out, "{}", palette.bold(if narrow { NARROW_TITLES } else { TITLES }));
    for (i, run) in report.runs.iter().enumerate() {
        let new_group =
            i > 0 && (report.runs[i - 1].size_bytes, report.runs[i - 1].churn) != (run.size_bytes, run.churn);
        if new_group {
            out.push('\n');
        }
        line(&mut out, report, run, palette, narrow);
    }
    explain(&mut out, report, palette, columns);
    out
}

fn line(out: &mut String, report: &Report, run: &Run, palette: Palette, narrow: bool) {
    let mode = format!("{:<13}", run.mode.name());
    let mode = if run.mode.is_coherent() { palette.bold(&mode) } else { mode };
    let stale = match run.stale {
        0 => palette.paint(Colour::Green, &format!("{:>5}", 0)),
        n => palette.paint(Colour::Red, &format!("{:>5}", count(n))),
    };
    let _ = writeln!(
        out,
        "{:>4}  {:<5}  {mode}  {:>6}{}  {:>8} {:>8}  {}  {stale}{}",
        size_name(run.size_bytes),
        run.churn.name(),
        rate(run.bytes_per_s / 1e9),
        if narrow { String::new() } else { format!(" {}", bar(report, run, palette)) },
        duration(run.p50_ns),
        duration(run.p99_ns),
        counts(run, narrow),
        errors(run, palette),
    );
}

/// What the cache did; the more important half where there is no room for all.
fn counts(run: &Run, narrow: bool) -> String {
    let [hits, misses, invalid, uncached] =
        [run.hits, run.misses, run.invalidations, run.uncached].map(count);
    match (run.mode.is_coherent(), narrow) {
        (true, false) => format!("{hits:>7}  {misses:>7}  {invalid:>8}  {uncached:>8}"),
        (true, true) => format!("{hits:>7}  {misses:>7}"),
        (false, false) => " ".repeat(36),
        (false, true) => " ".repeat(16),
    }
}

/// Two decimals; four for what is slow, as under emulation.
fn rate(gb_per_s: f64) -> String {
    if gb_per_s < 0.1 { format!("{gb_per_s:.4}") } else { format!("{gb_per_s:.2}") }
}

/// Ten places, full for the fastest line of the group.
fn bar(report: &Report, run: &Run, palette: Palette) -> String {
    let group = report.runs.iter().filter(|r| (r.size_bytes, r.churn) == (run.size_bytes, run.churn));
    let fastest = group.map(|r| r.bytes_per_s).fold(f64::MIN_POSITIVE, f64::max);
    let eighths = (run.bytes_per_s / fastest * 80.0).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    text.push_str(["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8]);
    palette.paint(if run.mode.is_coherent() { Colour::Green } else { Colour::Grey }, &format!("{text:<10}"))
}

fn errors(run: &Run, palette: Palette) -> String {
    match &run.first_error {
        Some(error) => palette.paint(Colour::Red, &format!("  {} errors: {error}", run.errors)),
        None => String::new(),
    }
}

/// Two lines: what was proved, and what it is worth.
fn explain(out: &mut String, report: &Report, palette: Palette, columns: usize) {
    let ops: u64 = report.runs.iter().map(|run| run.ops).sum();
    let bytes: f64 = report.runs.iter().map(|run| run.ops as f64 * run.size_bytes as f64).sum();
    let cached = || report.runs.iter().filter(|run| run.mode.is_coherent());
    let (stale, churns) = (cached().map(|r| r.stale).sum::<u64>(), cached().map(|r| r.churns).sum::<u64>());
    let verdict = match (stale, cached().next().is_some()) {
        (_, false) => "no mode with pindown's cache was run".to_owned(),
        (0, true) => palette.paint(
            Colour::Green,
            &format!(
                "pindown's cache moved no stale byte, though its memory was changed {} times",
                count(churns)
            ),
        ),
        (n, true) => {
            palette.paint(Colour::Red, &format!("{} transfers through pindown's cache were STALE", count(n)))
        }
    };
    let proof = format!(
        "All bytes of {} transfers ({}) were compared with what the CPU sees: {verdict}.",
        count(ops),
        if bytes < 1e8 { format!("{:.1} MB", bytes / 1e6) } else { format!("{:.1} GB", bytes / 1e9) }
    );
    let (proof, worth) = (wrapped(&proof, columns), wrapped(&worth(report), columns));
    let _ = writeln!(out, "\n{proof}\n{worth}");
}

fn worth(report: &Report) -> String {
    let clock = "GB/s counts registering, moving and letting go; filling, comparing and preempted transfers are off the clock";
    let ratios = |mode, churn| {
        let runs = report.runs.iter().filter(|r| r.mode == Mode::Cached && r.churn == churn);
        let ratios: Vec<_> = runs
            .filter_map(|run| Some(run.bytes_per_s / report.beside(run, mode)?.bytes_per_s))
            .filter(|ratio| ratio.is_finite())
            .collect();
        let geometric = (ratios.iter().map(|r: &f64| r.ln()).sum::<f64>() / ratios.len() as f64).exp();
        (!ratios.is_empty()).then_some(geometric)
    };
    match (ratios(Mode::Preregistered, Churn::None), ratios(Mode::PerOp, Churn::None)) {
        (Some(ceiling), Some(per_op)) => format!(
            "{clock}. Without churn cached reaches {:.0} % of preregistered and {per_op:.1}x per-op.",
            100.0 * ceiling
        ),
        _ => format!("{clock}."),
    }
}
