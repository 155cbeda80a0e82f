//! The result for people.

use std::fmt::Write;

use super::report::{Measured, Report};
use crate::ui::{Colour, Palette};

/// The whole text.
pub(super) fn render(report: &Report, palette: Palette) -> String {
    let mut out = String::new();
    let peer = report.figures.iter().any(|f| f.ucx.is_some());
    let head = format!(
        "pindown bench: Linux {}, {} processors, median of {} rounds, registrations do nothing",
        report.kernel, report.processors, report.rounds
    );
    let _ = writeln!(out, "{}\n", palette.bold(&head));
    let beside = if peer { format!("{:>10} {:>7}", "UCX", "ratio") } else { String::new() };
    let titles = format!("{:<32}{:>10} {beside}{:>11}  floor is", "", "pindown", "floor");
    let _ = writeln!(out, "{}", palette.bold(&titles));
    report.figures.iter().for_each(|figure| line(&mut out, figure, peer, palette));
    out
}

fn line(out: &mut String, figure: &Measured, peer: bool, palette: Palette) {
    let own = palette.bold(&format!("{:>10}", value(figure, figure.pindown)));
    let beside = match peer {
        true => format!("{:>10} {}", value(figure, figure.ucx), ratio(figure, palette)),
        false => String::new(),
    };
    let floor = value(figure, figure.floor);
    let _ = writeln!(out, "{:<32}{own} {beside}{floor:>11}  {}", figure.name, figure.floor_is);
    for error in &figure.errors {
        let _ = writeln!(out, "  {}", palette.paint(Colour::Red, error));
    }
}

fn ratio(figure: &Measured, palette: Palette) -> String {
    let Some((own, ucx)) = figure.pindown.zip(figure.ucx).filter(|(_, ucx)| *ucx > 0.0) else {
        return " ".repeat(7);
    };
    let text = format!("{:>6.2}x", own / ucx);
    palette.paint(if own <= ucx { Colour::Green } else { Colour::Yellow }, &text)
}

fn value(figure: &Measured, value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(v) if !figure.is_time() => format!("{v:.2}"),
        Some(v) if v < 1e3 => format!("{v:.1} ns"),
        Some(v) if v < 1e6 => format!("{:.1} µs", v / 1e3),
        Some(v) => format!("{:.2} ms", v / 1e6),
    }
}
