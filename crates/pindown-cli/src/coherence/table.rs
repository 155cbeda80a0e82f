//! The result for people: events down, kinds of memory across, one letter a cell.

use std::fmt::Write;

use super::cell::Outcome;
use super::event::{Group, events};
use super::mapping::MAPPINGS;
use super::report::{Report, Row};
use crate::ui::{Colour, Palette};

const NAME_WIDTH: usize = 33;

/// The whole text.
pub(crate) fn render(report: &Report, monitors: &[String], palette: Palette) -> String {
    let mut out = String::new();
    for monitor in monitors {
        let rows: Vec<_> = report.rows.iter().filter(|r| r.monitor == *monitor).collect();
        render_monitor(&mut out, monitor, &rows, palette);
    }
    legend(&mut out, palette);
    problems(&mut out, report, palette);
    summary(&mut out, report, monitors, palette);
    out
}

/// The kinds of memory that have a row, with the letter of their column.
fn columns(rows: &[&Row]) -> Vec<(char, &'static str)> {
    let used = MAPPINGS.iter().map(|m| m.name).filter(|name| rows.iter().any(|r| r.mapping == *name));
    ('a'..='z').zip(used).collect()
}

fn render_monitor(out: &mut String, monitor: &str, rows: &[&Row], palette: Palette) {
    let columns = columns(rows);
    let _ = writeln!(out, "{}", palette.bold(&format!("monitor {monitor}")));
    for line in columns.chunks(4) {
        let cells: String = line.iter().map(|(letter, name)| format!("  {letter} {name:<16}")).collect();
        let _ = writeln!(out, "{}", cells.trim_end());
    }
    let letters: String = columns.iter().map(|(letter, _)| format!(" {letter}")).collect();
    let _ = writeln!(out, "{:NAME_WIDTH$}{letters}", "");
    for group in Group::ALL {
        render_group(out, group, rows, &columns, palette);
    }
    out.push('\n');
}

fn render_group(out: &mut String, group: Group, rows: &[&Row], columns: &[(char, &str)], palette: Palette) {
    let named: Vec<_> =
        events().filter(|e| e.group == group && rows.iter().any(|r| r.event == e.name)).collect();
    if named.is_empty() {
        return;
    }
    let _ = writeln!(out, "{}", palette.bold(group.title()));
    for event in named {
        let _ = write!(out, "{:NAME_WIDTH$}", format!("  {}", event.name));
        for (_, mapping) in columns {
            let row = rows.iter().find(|r| r.event == event.name && r.mapping == *mapping);
            let _ = write!(out, " {}", row.map_or(" ".into(), |r| mark(r.outcome, r.hazard, palette)));
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
}

/// A letter, capital where the same event without pindown moved wrong bytes.
fn mark(outcome: Outcome, hazard: bool, palette: Palette) -> String {
    let (letter, colour) = match outcome {
        Outcome::Fresh => ('f', Colour::Green),
        Outcome::Kept => ('k', Colour::Green),
        Outcome::Uncached => ('u', Colour::Blue),
        Outcome::Waived => ('w', Colour::Yellow),
        Outcome::Stale => ('s', Colour::Red),
        Outcome::Error => ('!', Colour::Red),
        Outcome::Unsupported => return palette.paint(Colour::Grey, "-"),
    };
    let letter = if hazard { letter.to_ascii_uppercase() } else { letter };
    palette.paint(colour, &letter.to_string())
}

fn legend(out: &mut String, palette: Palette) {
    let entries = [
        (Outcome::Fresh, "registered anew, right bytes"),
        (Outcome::Kept, "still a hit, right bytes"),
        (Outcome::Uncached, "never kept, right bytes"),
        (Outcome::Waived, "wrong bytes, by an event the monitor waives by name"),
        (Outcome::Stale, "wrong bytes"),
        (Outcome::Error, "hung or crashed"),
        (Outcome::Unsupported, "the kernel refuses it"),
    ];
    for line in entries.chunks(3) {
        let text: Vec<_> =
            line.iter().map(|(o, text)| format!("{} {text}", mark(*o, false, palette))).collect();
        let _ = writeln!(out, "{}", text.join(" · "));
    }
    let _ = writeln!(
        out,
        "CAPITAL: the same event without pindown moved wrong bytes on this machine, just now\n"
    );
}

/// Lines of problems before the rest is counted only.
const MOST_PROBLEMS: usize = 12;

/// What went wrong, in words.
fn problems(out: &mut String, report: &Report, palette: Palette) {
    let noteworthy = |r: &&Row| r.outcome.is_bad() || r.outcome == Outcome::Waived;
    let count = report.rows.iter().filter(noteworthy).count();
    for row in report.rows.iter().filter(noteworthy).take(MOST_PROBLEMS) {
        let colour = if row.outcome.is_bad() { Colour::Red } else { Colour::Yellow };
        let what = palette.paint(colour, &format!("{:?}", row.outcome).to_lowercase());
        let _ = writeln!(out, "{what}  {} on {} ({}): {}", row.event, row.mapping, row.monitor, row.detail);
    }
    if count > MOST_PROBLEMS {
        let _ = writeln!(out, "... and {} more (--json lists them all)", count - MOST_PROBLEMS);
    }
}

fn summary(out: &mut String, report: &Report, monitors: &[String], palette: Palette) {
    for monitor in monitors {
        let of = |f: &dyn Fn(&&Row) -> bool| {
            report.rows.iter().filter(|r| r.monitor == *monitor).filter(f).count()
        };
        let (executed, hazards) = (of(&|r| r.outcome.executed()), of(&|r| r.outcome.executed() && r.hazard));
        let _ = writeln!(
            out,
            "{}: {executed} rows executed (uid {}, Linux {}); in {hazards} of them the same event without pindown moved wrong bytes",
            palette.bold(monitor),
            report.uid,
            report.kernel,
        );
    }
    let colour = if report.is_bad() { Colour::Red } else { Colour::Green };
    let verdict = format!("{} stale, {} errors", report.stale, report.errors);
    let _ = writeln!(out, "{}, {} waived", palette.paint(colour, &verdict), report.waived);
}
