//! The commands as their users see them: JSON, exit statuses, and that the checks can fail.

use std::process::{Command, Output};

use serde_json::Value;

fn pindown(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pindown")).args(args).output().expect("the binary starts")
}

/// The JSON document and the exit status; `None` where this machine cannot do it (status 3).
fn json(args: &[&str]) -> Option<(Value, i32)> {
    let output = pindown(args);
    let status = output.status.code().expect("not ended by a signal");
    if status == 3 {
        eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let document =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text:?} {:?}", output.stderr));
    Some((document, status))
}

fn rows(report: &Value) -> &Vec<Value> {
    report["rows"].as_array().expect("rows")
}

#[test]
fn usage_errors_exit_with_2() {
    for args in [
        &["nonsense"][..],
        &["perf", "--size", "5"],
        &["perf", "--monitor", "nobody"],
        &["perf", "--seconds", "1", "--ops", "1"],
        &["coherence", "--event", "no such event"],
    ] {
        assert_eq!(pindown(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn what_is_missing_exits_with_3_and_a_remedy() {
    let output = pindown(&["perf", "--provider", "io-uring", "--monitor", "odp"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("remedy:"));
}

#[test]
fn coherence_shows_the_hazard_without_a_monitor() {
    let Some((report, status)) = json(&[
        "coherence",
        "--monitor",
        "none",
        "--mapping",
        "anon-private",
        "--event",
        "map-fixed",
        "--json",
    ]) else {
        return;
    };
    assert_eq!(status, 1);
    assert!(report["stale"].as_u64() >= Some(3), "{report}");
    for row in rows(&report) {
        assert_eq!((row["outcome"].as_str(), row["hazard"].as_bool()), (Some("stale"), Some(true)), "{row}");
    }
}

#[test]
fn coherence_is_right_when_the_program_reports_its_changes() {
    let Some((report, status)) = json(&[
        "coherence",
        "--monitor",
        "manual",
        "--mapping",
        "anon-private",
        "--event",
        "mprotect",
        "--json",
    ]) else {
        return;
    };
    assert_eq!((status, report["stale"].as_u64()), (0, Some(0)), "{report}");
    assert!(rows(&report).iter().all(|row| row["outcome"] == "kept" && row["hazard"] == false), "{report}");
    for field in ["mapping", "event", "monitor", "detail"] {
        assert!(rows(&report)[0][field].is_string(), "{field}");
    }
}

#[test]
fn perf_without_a_monitor_moves_stale_bytes_and_says_so() {
    let args = ["perf", "--monitor", "none", "--churn", "remap", "--size", "4K", "--ops", "2000", "--json"];
    let Some((report, status)) = json(&args) else { return };
    assert_eq!(status, 1);
    let stale = |mode: &str| run(&report, mode)["stale"].as_u64().expect("a count");
    assert!(stale("cached") > 0);
    for mode in ["preregistered", "per-op", "copy"] {
        assert_eq!(stale(mode), 0, "{mode} registers what it moves");
    }
}

/// The simulated device needs nothing of the machine, and `auto` always takes some monitor.
#[test]
fn perf_on_the_simulated_device_is_stale_without_a_monitor_and_only_then() {
    for (monitor, churn, bad) in [
        ("none", "remap", true),
        ("none", "mixed", true),
        ("manual", "remap", false),
        ("auto", "remap", false),
        ("auto", "mixed", false),
        ("auto", "free", false),
    ] {
        let args = [
            &["perf", "--provider", "sim", "--monitor", monitor, "--churn", churn][..],
            &["--size", "16K", "--ops", "300", "--json"],
            &["--mode", "cached", "--mode", "async", "--mode", "everything", "--mode", "per-op"],
        ];
        let (report, status) = json(&args.concat()).expect("runs on any machine");
        assert_eq!(status, i32::from(bad), "{report}");
        assert_eq!(report["provider"], "sim");
        for run in report["runs"].as_array().expect("runs") {
            let cache_alone = ["cached", "async", "everything"].iter().any(|mode| run["mode"] == *mode);
            assert_eq!(run["stale"].as_u64() > Some(0), bad && cache_alone, "{monitor} {churn}: {run}");
            assert_eq!((run["errors"].as_u64(), run["ops"].as_u64()), (Some(0), Some(300)), "{run}");
            assert!(run["churns"].as_u64() >= Some(20), "{run}");
        }
    }
}

#[test]
fn perf_makes_exactly_the_transfers_asked_for() {
    let args = [
        "perf",
        "--monitor",
        "manual",
        "--churn",
        "none",
        "--size",
        "64K",
        "--ops",
        "300",
        "--threads",
        "2",
        "--json",
    ];
    let Some((report, status)) = json(&args) else { return };
    assert_eq!(status, 0, "{report}");
    let cached = run(&report, "cached");
    assert_eq!((cached["ops"].as_u64(), cached["threads"].as_u64()), (Some(600), Some(2)));
    assert_eq!((cached["stale"].as_u64(), cached["errors"].as_u64()), (Some(0), Some(0)));
    assert!(cached["hits"].as_u64() > Some(500), "{cached}");
    for field in [
        "size_bytes",
        "bytes_per_s",
        "p50_ns",
        "p99_ns",
        "misses",
        "invalidations",
        "uncached",
        "registered_bytes_peak",
    ] {
        assert!(cached[field].is_number(), "{field}");
    }
}

fn run<'a>(report: &'a Value, mode: &str) -> &'a Value {
    let runs = report["runs"].as_array().expect("runs");
    runs.iter().find(|run| run["mode"] == mode).unwrap_or_else(|| panic!("no run of {mode}"))
}

#[test]
fn doctor_names_what_auto_takes_and_why_not_the_rest() {
    let (report, status) = json(&["doctor", "--json"]).expect("doctor always runs");
    assert_eq!(status, 0);
    let usable = |list: &str, name: &str| {
        let rows = report[list].as_array().expect("rows");
        let row =
            rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name} is not listed"));
        row["usable"] == true
    };
    for row in report["monitors"].as_array().expect("monitors") {
        assert!(row["usable"] == true || row["remedy"].is_string(), "{row}");
        assert!(row["why"].is_string(), "{row}");
    }
    assert!(usable("monitors", report["recommended"]["monitor"].as_str().expect("a monitor")));
    if let Some(provider) = report["recommended"]["provider"].as_str() {
        assert!(usable("providers", provider));
    }
    let memlock =
        report["limits"].as_array().expect("limits").iter().any(|row| row["name"] == "RLIMIT_MEMLOCK");
    assert!(memlock, "{report}");
    assert_eq!(report["kernel"], kernel_release());
}

fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux").trim().to_owned()
}

/// The claim in small: what must be cached is cached, and right after each change.
#[test]
fn coherence_of_uffd_holds_where_it_caches() {
    for mapping in ["anon-private", "brk-heap", "memfd-shared"] {
        let Some((report, status)) =
            json(&["coherence", "--monitor", "uffd", "--mapping", mapping, "--json"])
        else {
            return;
        };
        assert_eq!((status, report["stale"].as_u64()), (0, Some(0)), "{report}");
        for row in rows(&report) {
            let (event, outcome) = (row["event"].as_str().expect("a name"), row["outcome"].as_str());
            let waived = outcome == Some("waived");
            assert!(!waived || event == "madvise-guard-install", "{row}");
            if row["hazard"] == true && !waived {
                assert_eq!(outcome, Some("fresh"), "{row}");
            }
            if mapping != "memfd-shared" && ["mprotect-none-and-back", "fork-child-writes"].contains(&event) {
                assert_eq!(outcome, Some("kept"), "{row}");
            }
        }
        assert!(report["hazards"].as_u64() >= Some(20), "{report}");
    }
}

#[test]
fn bench_prints_the_contracts_figures_and_checks_answers() {
    let figures = ["--figure", "check", "--figure", "window_registered_ratio", "--figure", "hit_same_1t"];
    let args = [&["bench", "--monitor", "manual", "--rounds", "1", "--json"][..], &figures].concat();
    let Some((report, status)) = json(&args) else { return };
    assert_eq!(status, 0, "{report}");
    let figure = |name: &str| {
        let all = report["figures"].as_array().expect("figures");
        all.iter().find(|f| f["name"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
    };
    assert_eq!(figure("check")["pindown"], 0.0);
    let ratio = figure("window_registered_ratio")["pindown"].as_f64().unwrap();
    assert!((1.0..2.5).contains(&ratio), "{ratio}");
    let hit = figure("hit_same_1t");
    assert!(hit["pindown"].as_f64() > Some(0.0) && hit["floor"].as_f64() > Some(0.0) && hit["ucx"].is_null());
}

#[test]
fn bench_without_the_peers_program_says_how_to_get_it() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_pindown"));
    let output = bench.args(["bench", "--peer", "ucx", "--figure", "check"]).output().unwrap();
    if output.status.code() == Some(3) {
        assert!(String::from_utf8_lossy(&output.stderr).contains("cargo xtask bench-peers"));
    } else {
        assert_eq!(output.status.code(), Some(0), "built beside: then it runs");
    }
}
