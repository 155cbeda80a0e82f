//! The result: the same rows on both hosts.

use std::fmt::Write;

use serde::Serialize;

use super::Side;
use super::line::Row;
use crate::machine;
use crate::perf::{Mode, size_name};
use crate::ui::{Colour, Palette, count, duration};

/// The document.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    provider: &'static str,
    monitor: &'static str,
    kernel: String,
    /// Which host printed this.
    side: Side,
    runs: Vec<Row>,
}

impl Report {
    pub(crate) fn new(monitor: &'static str, side: Side, own: Vec<Row>, theirs: Vec<Row>) -> Self {
        let (first, second) = if side == Side::Connector { (own, theirs) } else { (theirs, own) };
        let runs = first.into_iter().chain(second).collect();
        Self { provider: "verbs", monitor, kernel: machine::kernel_release(), side, runs }
    }

    /// Whether mode cached moved a wrong byte, on either host.
    pub(crate) fn is_bad(&self) -> bool {
        self.runs.iter().any(|row| row.errors > 0 || (row.mode == Mode::Cached && row.stale > 0))
    }

    pub(crate) fn render(&self, palette: Palette) -> String {
        let mut out = String::new();
        let head =
            format!("pindown perf: verbs between two hosts, monitor {}, Linux {}", self.monitor, self.kernel);
        let _ = writeln!(out, "{}\n", palette.bold(&head));
        let titles = "from       op     size  churn  mode             GB/s       p50      p99   hits  misses  registrations    in them  stale";
        let _ = writeln!(out, "{}", palette.bold(titles));
        self.runs.iter().for_each(|row| line(&mut out, row, palette));
        self.explain(&mut out);
        out
    }

    /// The rows of modes side by side, and what they are worth.
    fn explain(&self, out: &mut String) {
        let bytes: f64 = self.runs.iter().map(|r| r.ops as f64 * r.size_bytes as f64).sum();
        let stale: u64 = self.runs.iter().filter(|r| r.mode == Mode::Cached).map(|r| r.stale).sum();
        let _ = writeln!(
            out,
            "\n{:.2} GB crossed, each byte compared where it arrived: {stale} transfers of mode cached stale.",
            bytes / 1e9
        );
        let _ = writeln!(
            out,
            "cached: {} of preregistered's rate, {} of per-op's; {} of per-op's time in registering.",
            percent(self.ratio(Mode::Preregistered, |row| row.bytes_per_s)),
            percent(self.ratio(Mode::PerOp, |row| row.bytes_per_s)),
            percent(self.ratio(Mode::PerOp, |row| row.registering_ns as f64)),
        );
    }

    /// The geometric mean of mode cached over `mode`.
    fn ratio(&self, mode: Mode, value: impl Fn(&Row) -> f64) -> Option<f64> {
        let same = |a: &Row, b: &Row| {
            (a.side, a.op, a.size_bytes, a.churn) == (b.side, b.op, b.size_bytes, b.churn) && b.mode == mode
        };
        let cached = self.runs.iter().filter(|row| row.mode == Mode::Cached);
        let logs: Vec<f64> = cached
            .filter_map(|row| Some((value(row) / value(self.runs.iter().find(|r| same(row, r))?)).ln()))
            .filter(|log| log.is_finite())
            .collect();
        (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
    }
}

fn percent(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |r| format!("{:.0} %", 100.0 * r))
}

fn line(out: &mut String, row: &Row, palette: Palette) {
    let side = if row.side == Side::Connector { "connector" } else { "listener" };
    let mode = format!("{:<13}", row.mode.name());
    let mode = if row.mode == Mode::Cached { palette.bold(&mode) } else { mode };
    let stale = match row.stale {
        0 => palette.paint(Colour::Green, "    0"),
        n => palette.paint(Colour::Red, &format!("{:>5}", count(n))),
    };
    let _ = writeln!(
        out,
        "{side:<9}  {:<5}  {:>4}  {:<5}  {mode}  {:>6.3}  {:>8} {:>8}  {:>5}  {:>6}  {:>13}  {:>9}  {stale}",
        row.op.name(),
        size_name(row.size_bytes),
        row.churn.name(),
        row.bytes_per_s / 1e9,
        duration(row.p50_ns),
        duration(row.p99_ns),
        count(row.hits),
        count(row.misses),
        count(row.registrations),
        duration(row.registering_ns),
    );
}
