//! The HTML report: one page, self-contained, readable on a phone.

mod chart;

use std::fmt::Write;

use crate::advise::{Advice, bytes, time};
use crate::sweep::Curves;
use crate::workload::Workload;
use chart::{Chart, Series};

const STYLE: &str = include_str!("report/style.css");

/// Renders the page. `name` is the trace's, for the title.
pub fn html(name: &str, workload: &Workload, advice: &Advice) -> String {
    let mut page = String::with_capacity(64 << 10);
    let title = escape(name);
    _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>pindown replay: {title}</title><style>{STYLE}</style></head><body><main>"
    );
    _ = write!(
        page,
        "<h1>How much memory to keep registered</h1><p class=\"sub\">Trace <b>{title}</b>: {}</p>",
        facts(workload)
    );
    verdict(&mut page, advice);
    charts(&mut page, workload, &advice.curves, advice.max_bytes);
    table(&mut page, &advice.curves);
    glossary(&mut page, workload, &advice.curves);
    page.push_str("</main></body></html>\n");
    page
}

fn facts(workload: &Workload) -> String {
    format!(
        "{} requests for {} buffers, {} in all.",
        thousands(workload.requests()),
        thousands(workload.footprint_regions()),
        bytes(workload.footprint_bytes())
    )
}

fn verdict(page: &mut String, advice: &Advice) {
    _ = write!(
        page,
        "<section class=\"verdict\"><h2>What to set</h2><p class=\"big\">Keep up to <b>{}</b> registered, \
         with the <b>{}</b> policy.</p><ul>",
        bytes(advice.max_bytes),
        escape(&advice.policy)
    );
    for reason in &advice.reasons {
        _ = write!(page, "<li>{}</li>", escape(reason));
    }
    _ = write!(page, "</ul><pre>{}</pre></section>", escape(&advice.snippet));
}

fn charts(page: &mut String, workload: &Workload, curves: &Curves, chosen_bytes: u64) {
    let total = workload.requests().max(1) as f64;
    let cost = |ns: u64| ns as f64 / 1e9;
    let draw = |title, unit, run: &dyn Fn(&crate::Run) -> f64, best: &dyn Fn(&crate::bound::Bound) -> f64| {
        let mut series: Vec<_> = curves
            .policies()
            .into_iter()
            .map(|name| Series {
                name: name.to_owned(),
                points: curves.of(name).map(|r| (r.max_bytes as f64, run(r))).collect(),
                is_bound: false,
            })
            .collect();
        series.push(Series {
            name: "best possible".to_owned(),
            points: curves.optimal.iter().map(|b| (b.max_bytes as f64, best(b))).collect(),
            is_bound: true,
        });
        Chart { title, unit, mark: chosen_bytes as f64, series }.svg()
    };
    page.push_str("<section><h2>Misses</h2><p>Share of requests that found no registration and had to make one. Lower is better; more room (to the right) helps.</p>");
    page.push_str(&draw("Misses by room", "%", &|r| r.misses as f64 * 100.0 / total, &|b| {
        b.misses as f64 * 100.0 / total
    }));
    page.push_str("</section><section><h2>Cost</h2><p>Time spent registering over the whole trace, in seconds. A miss on a large buffer costs more than one on a small buffer, so this is what to look at.</p>");
    page.push_str(&draw("Cost by room", "s", &|r| cost(r.cost_ns), &|b| cost(b.cost_ns)));
    page.push_str("</section>");
}

fn table(page: &mut String, curves: &Curves) {
    page.push_str(
        "<section><h2>All figures</h2><div class=\"scroll\"><table><thead><tr><th>Room</th><th>Policy</th>\
         <th>Hits</th><th>Misses</th><th>Evicted</th><th>Changed</th><th>Cost</th><th>× best</th></tr></thead><tbody>",
    );
    for best in &curves.optimal {
        let same = |r: &&crate::Run| (r.max_bytes, r.max_regions) == (best.max_bytes, best.max_regions);
        for (at, run) in curves.runs.iter().filter(same).enumerate() {
            let room = if at == 0 { room(best) } else { String::new() };
            _ = write!(
                page,
                "<tr{}><td>{room}</td><td>{}</td><td>{:.1} %</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.2}</td></tr>",
                if at == 0 { " class=\"first\"" } else { "" },
                escape(&run.policy),
                run.hits as f64 * 100.0 / run.acquires.max(1) as f64,
                thousands(run.misses),
                thousands(run.evictions),
                thousands(run.invalidated),
                time(run.cost_ns),
                run.cost_ns as f64 / best.cost_ns.max(1) as f64
            );
        }
    }
    page.push_str("</tbody></table></div></section>");
}

fn room(best: &crate::bound::Bound) -> String {
    match (best.max_bytes, best.max_regions) {
        (u64::MAX, regions) => format!("{} buffers", thousands(regions)),
        (max_bytes, u64::MAX) => bytes(max_bytes),
        (max_bytes, regions) => format!("{}, {} buffers", bytes(max_bytes), thousands(regions)),
    }
}

fn glossary(page: &mut String, workload: &Workload, curves: &Curves) {
    let exact = curves.optimal.iter().all(|b| b.exact);
    let best = if exact {
        "what a cache that knew the future would do (Belady's MIN), exactly"
    } else {
        "a proven lower bound for a cache that knows the future; nothing does better, and not all of it can be reached"
    };
    _ = write!(
        page,
        "<section><h2>What the words mean</h2><dl>\
         <dt>Registering</dt><dd>Pinning memory and telling the device about it, so that it can move data by itself. It is slow, so registrations are kept for the next use.</dd>\
         <dt>Room</dt><dd>How much memory may be kept registered at a time. It cannot be swapped or moved meanwhile.</dd>\
         <dt>Hit, miss</dt><dd>A request that found a registration, or had to make one.</dd>\
         <dt>Evicted, changed</dt><dd>Registrations dropped for lack of room, or because the program freed or remapped the memory.</dd>\
         <dt>Policy</dt><dd>Which registration goes when room is short.</dd>\
         <dt>Best possible</dt><dd>{best}.</dd>\
         <dt>Cost</dt><dd>From registrations measured in the trace where there are any; else {:.1} µs plus {:.3} ns a byte. Widening of registrations is not simulated.</dd>\
         </dl></section>",
        workload.model.fixed_ns / 1e3,
        workload.model.per_byte_ns
    );
}

/// `1234567` as `1 234 567`, with no-break spaces.
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Scenario;

    fn page() -> String {
        let trace = Scenario::named("mpi").unwrap().trace();
        let workload = Workload::compile(&trace[..60_000], None);
        html("<mpi & co>", &workload, &crate::advise::advise(&workload, &mut |_| ()))
    }

    #[test]
    fn stands_alone_and_escapes() {
        let page = page();
        assert!(page.contains("&lt;mpi &amp; co&gt;") && !page.contains("<mpi"));
        for forbidden in ["http://", "https://", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(forbidden), "{forbidden}: nothing may be fetched");
        }
        assert!(page.contains("width=device-width"));
    }

    #[test]
    fn both_charts_have_a_line_for_each_policy_and_the_bound() {
        let page = page();
        let lines = 2 * (pindown_core::PolicyKind::ALL.len() + 1);
        assert_eq!(page.matches("<polyline").count(), lines);
        assert!(!page.contains("NaN") && !page.contains("inf"), "all coordinates are numbers");
    }

    #[test]
    fn digits_are_grouped() {
        assert_eq!(thousands(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(thousands(42), "42");
    }
}
