//! The facts for people.

use std::fmt::Write;

use pindown::probe::Standing;

use super::report::{BackendRow, LimitRow, Report};
use crate::ui::{Colour, Palette};

/// The whole text.
pub(crate) fn render(report: &Report, palette: Palette) -> String {
    let mut out = String::new();
    let provider = report.recommended.provider.unwrap_or("none");
    let head = format!("pindown doctor: Linux {}, uid {}", report.kernel, report.uid);
    let _ = writeln!(out, "{}", palette.bold(&head));
    let _ =
        writeln!(out, "auto takes monitor {}, provider {provider}", palette.bold(report.recommended.monitor));
    backends(&mut out, "monitors", &report.monitors, palette);
    coverage(&mut out, report, palette);
    backends(&mut out, "providers", &report.providers, palette);
    super::verbs::render(&mut out, &report.verbs_devices, palette);
    limits(&mut out, &report.limits, palette);
    facilities(&mut out, report, palette);
    out
}

fn title(out: &mut String, text: &str, palette: Palette) {
    let _ = writeln!(out, "\n{}", palette.bold(text));
}

fn remedy(out: &mut String, text: &str, palette: Palette) {
    let _ = writeln!(out, "      {} {text}", palette.paint(Colour::Yellow, "remedy:"));
}

fn mark(standing: Standing, palette: Palette) -> String {
    match standing {
        Standing::Good => palette.paint(Colour::Green, "✓"),
        Standing::Restricted => palette.paint(Colour::Yellow, "!"),
        Standing::Missing => palette.paint(Colour::Grey, "✗"),
        _ => " ".into(),
    }
}

fn backends(out: &mut String, what: &str, rows: &[BackendRow], palette: Palette) {
    title(out, what, palette);
    for row in rows {
        let standing = if row.usable { Standing::Good } else { Standing::Missing };
        let _ = writeln!(out, "  {} {:<10} {}", mark(standing, palette), row.name, row.why);
        if let Some(text) = row.remedy.as_deref().filter(|_| !row.usable) {
            remedy(out, text, palette);
        }
    }
}

/// What the recommended monitor caches, and what it leaves to the program.
fn coverage(out: &mut String, report: &Report, palette: Palette) {
    let chosen = report.monitors.iter().find(|m| m.name == report.recommended.monitor);
    let Some(monitor) = chosen.filter(|m| !m.coverage.is_empty()) else { return };
    title(out, &format!("what {} keeps coherent", monitor.name), palette);
    for row in &monitor.coverage {
        let (mark, note) = match row.cover {
            "full" => (palette.paint(Colour::Green, "cached"), String::new()),
            "waived" => (palette.paint(Colour::Green, "cached"), format!("  ({})", row.note)),
            "if" => (palette.paint(Colour::Yellow, "cached"), format!("  if {}", row.note)),
            _ => (palette.paint(Colour::Blue, "not cached"), format!("  {}", row.note)),
        };
        let _ = writeln!(out, "    {:<32} {mark}{note}", row.mapping);
    }
    if !monitor.waived.is_empty() {
        let text = format!(
            "{}: not seen. Do not do it to registered memory, or tell the cache (Notifier::invalidate)",
            monitor.waived.join(", ")
        );
        let _ = writeln!(out, "  {} {text}", palette.paint(Colour::Yellow, "!"));
    }
}

fn limits(out: &mut String, rows: &[LimitRow], palette: Palette) {
    title(out, "limits", palette);
    for row in rows {
        let standing = if row.binds { Standing::Restricted } else { Standing::Plain };
        let value = amount(row.value, row.unit);
        let source = palette.paint(Colour::Grey, &format!("[{}]", row.source));
        let _ = writeln!(out, "  {} {:<24} {value:<18} {source}", mark(standing, palette), row.name);
        if row.binds {
            remedy(out, row.remedy, palette);
        }
    }
}

fn amount(value: Option<u64>, unit: &str) -> String {
    match (value, unit) {
        (None, _) => "unlimited".into(),
        (Some(n), "bytes") if n >= 1 << 30 => format!("{:.1} GiB", n as f64 / f64::from(1 << 30)),
        (Some(n), "bytes") if n >= 1 << 20 => format!("{:.1} MiB", n as f64 / f64::from(1 << 20)),
        (Some(n), "bytes") => format!("{} KiB", n >> 10),
        (Some(n), unit) => format!("{n} {unit}"),
    }
}

fn facilities(out: &mut String, report: &Report, palette: Palette) {
    title(out, "facilities", palette);
    for row in &report.facilities {
        let source = palette.paint(Colour::Grey, &format!("[{}]", row.source));
        let _ = writeln!(out, "  {} {:<24} {} {source}", mark(row.standing, palette), row.name, row.value);
        if let Some(text) = row.remedy.filter(|_| row.standing != Standing::Good) {
            remedy(out, text, palette);
        }
    }
}
