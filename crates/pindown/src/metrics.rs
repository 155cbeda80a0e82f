//! Counters in the text format that Prometheus scrapes.
//!
//! The library opens no port: hand [`prometheus`] to your own exporter, or let
//! `pindown metrics` print it for all processes (e.g. into node_exporter's textfile directory).

use std::fmt::Write;

use pindown_core::{EventKind, Stats};

/// Whether a value only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

/// One value of [`Stats`].
struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&Stats) -> u64,
    slot: fn(&mut Stats) -> &mut u64,
}

macro_rules! metrics {
    ($($kind:ident $name:ident: $help:literal),* $(,)?) => {
        [$(Metric { name: stringify!($name), kind: Kind::$kind, help: $help, value: |s| s.$name, slot: |s| &mut s.$name }),*]
    };
}

const METRICS: [Metric; 31] = metrics![
    Counter gets: "Requests",
    Counter hits: "Requests served by an existing registration",
    Counter misses: "Requests that found no registration",
    Counter shared_flights: "Misses that waited for the registration of another thread",
    Counter registrations: "Registrations made",
    Counter deregistrations: "Registrations given back",
    Counter register_failures: "Registrations that failed",
    Counter deregister_failures: "Deregistrations that failed and are retried",
    Counter raced: "Registrations given up because their range changed meanwhile",
    Counter evictions: "Registrations dropped to make room",
    Counter expired: "Registrations dropped because they were idle or old",
    Counter copied: "Requests left to the copy path of the caller",
    Counter budget_lowered: "Times that a refusal of the system lowered the budget",
    Counter superseded: "Registrations dropped because another covers them",
    Counter invalidated: "Registrations made stale by a change",
    Counter invalidated_held: "Registrations made stale while held",
    Counter uncached: "Requests served without caching",
    Counter overflows: "Times that too many changes made everything stale",
    Counter lost: "Times that a monitor lost events",
    Counter drains: "Slow-path readings of reported changes",
    Gauge regions_live: "Registrations that lookups can find",
    Gauge bytes_live: "Bytes of those",
    Gauge regions_registered: "Registrations with the device",
    Gauge bytes_registered: "Bytes registered with the device",
    Gauge regions_draining: "Registrations stale or evicted and still held",
    Gauge regions_pending: "Registrations whose deregistration is queued",
    Gauge bytes_registered_peak: "Most bytes registered at a time",
    Gauge regions_registered_peak: "Most registrations at a time",
    Gauge budget_bytes: "Most bytes that may be registered at a time now",
    Gauge budget_regions: "Most registrations that may exist at a time now",
    Gauge kernel_bytes_estimate: "Kernel and device memory of the registrations beside their pages, estimated",
];

/// Names and values, for the page that other processes read.
pub(crate) fn fields(stats: &Stats) -> impl Iterator<Item = (&'static str, u64)> {
    let events = EventKind::ALL.iter().zip(stats.events).map(|(kind, count)| (kind.name(), count));
    METRICS.iter().map(|m| (m.name, (m.value)(stats))).chain(events)
}

/// Sets one of [`fields`]; unknown names, of another version, are passed over.
pub(crate) fn set(stats: &mut Stats, name: &str, value: u64) {
    if let Some(metric) = METRICS.iter().find(|m| m.name == name) {
        *(metric.slot)(stats) = value;
    } else if let Some(kind) = EventKind::ALL.iter().position(|k| k.name() == name) {
        stats.events[kind] = value;
    }
}

/// The counters of one cache. `labels` names it, e.g. `[("pid", "12"), ("provider", "io-uring")]`.
pub fn prometheus(stats: &Stats, labels: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(6 << 10);
    header_and_values(&mut out, &[(labels.to_vec(), *stats)]);
    out
}

/// The counters of several caches: each metric once, with a value for each cache.
pub fn prometheus_all(caches: &[(Vec<(&str, &str)>, Stats)]) -> String {
    let mut out = String::new();
    header_and_values(&mut out, caches);
    out
}

fn header_and_values(out: &mut String, caches: &[(Vec<(&str, &str)>, Stats)]) {
    for metric in &METRICS {
        let (suffix, kind) = match metric.kind {
            Kind::Counter => ("_total", "counter"),
            Kind::Gauge => ("", "gauge"),
        };
        let name = format!("pindown_{}{suffix}", metric.name);
        _ = writeln!(out, "# HELP {name} {}.\n# TYPE {name} {kind}", metric.help);
        for (labels, stats) in caches {
            _ = writeln!(out, "{name}{} {}", braced(labels), (metric.value)(stats));
        }
    }
    _ = writeln!(out, "# HELP pindown_events_total Reported changes.\n# TYPE pindown_events_total counter");
    for (labels, stats) in caches {
        for (kind, count) in EventKind::ALL.iter().zip(stats.events) {
            let mut labels = labels.clone();
            labels.push(("kind", kind.name()));
            _ = writeln!(out, "pindown_events_total{} {count}", braced(&labels));
        }
    }
}

fn braced(labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let escape = |v: &str| v.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<_> = labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escape(v))).collect();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_format_is_as_prometheus_reads_it() {
        let mut stats = Stats::default();
        (stats.hits, stats.bytes_live) = (7, 4096);
        let text = prometheus(&stats, &[("pid", "1"), ("command", "a\"b")]);
        assert!(text.contains(
            "# TYPE pindown_hits_total counter\npindown_hits_total{pid=\"1\",command=\"a\\\"b\"} 7\n"
        ));
        assert!(text.contains("# TYPE pindown_bytes_live gauge\n"));
        assert!(text.contains("kind=\"unmap\"} 0\n"));
        let names: std::collections::HashSet<_> = text.lines().filter(|l| l.starts_with("# TYPE")).collect();
        assert_eq!(names.len(), METRICS.len() + 1, "no name twice");
    }
}
