//! On the real kernel: what is pinned stays within the budget, also when two processes share
//! RLIMIT_MEMLOCK. `PINDOWN_SOAK_OPS` makes it longer.
#![cfg(all(feature = "io-uring", feature = "uffd"))]

use std::process::{Command, Stdio};

use io_uring::IoUring;
use pindown::provider::io_uring::UringProvider;
use pindown::{Access, AcquireError, Builder, MonitorChoice};

const MEMORY_BYTES: usize = 48 << 20;
const BUDGET_BYTES: u64 = 6 << 20;
/// Set in the processes that share a limit.
const CHILD: &str = "PINDOWN_BUDGET_CHILD";

fn ops(default: u64) -> u64 {
    std::env::var("PINDOWN_SOAK_OPS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// Pages that the kernel counts as pinned by this process (proc_pid_status(5), VmPin).
fn pinned_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|l| l.strip_prefix("VmPin:")).expect("VmPin");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") << 10
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[derive(Debug, Default)]
struct Outcome {
    acquired: u64,
    refused: u64,
    /// Refusals by the cache itself.
    over_budget: u64,
    most_pinned_bytes: u64,
}

/// Random requests of 4 KiB to 512 KiB, some held for a while, over eight times the budget.
fn soak(ops: u64, max_bytes: Option<u64>) -> Option<Outcome> {
    let ring = match IoUring::new(8) {
        Ok(ring) => ring,
        Err(error) => {
            println!("skipped: no io_uring here: {error}");
            return None;
        }
    };
    let mut builder =
        Builder::new(UringProvider::new(&ring).expect("a table of buffers")).monitor(MonitorChoice::Uffd);
    if let Some(max_bytes) = max_bytes {
        builder = builder.max_bytes(max_bytes);
    }
    let cache = match builder.build() {
        Ok(cache) => cache,
        Err(error) => {
            println!("skipped: no cache with uffd here: {error}");
            return None;
        }
    };
    let memory = vec![1u8; MEMORY_BYTES];
    let (mut outcome, mut held, mut state) = (Outcome::default(), Vec::new(), 7u64);
    for op in 0..ops {
        let len = 4096usize << (random(&mut state) % 8);
        let at = random(&mut state) as usize % (MEMORY_BYTES - len);
        // SAFETY: nothing is transferred.
        match unsafe { cache.acquire(memory[at..].as_ptr(), len, Access::READ) } {
            Ok(registration) => {
                outcome.acquired += 1;
                held.push(registration);
            }
            Err(error @ (AcquireError::Budget { .. } | AcquireError::Register(_))) => {
                outcome.refused += 1;
                outcome.over_budget += u64::from(matches!(error, AcquireError::Budget { .. }));
            }
            Err(other) => panic!("not an answer to a limit: {other:?}"),
        }
        if held.len() > 3 || outcome.refused > 0 && op % 7 == 0 {
            held.clear();
        }
        if op % 16 == 0 {
            outcome.most_pinned_bytes = outcome.most_pinned_bytes.max(pinned_bytes());
        }
    }
    Some(outcome)
}

#[test]
fn pinned_memory_never_exceeds_the_budget() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let _turn = turn();
    // RLIMIT_MEMLOCK is the user's: another process of the user may eat it for a while.
    let refused_none = (0..3).any(|_| soak_within(BUDGET_BYTES).is_none_or(|outcome| outcome.refused == 0));
    assert!(refused_none, "four small holds never fill it");
}

fn soak_within(budget_bytes: u64) -> Option<Outcome> {
    let outcome = soak(ops(20_000), Some(budget_bytes))?;
    println!("{outcome:?}");
    assert!(outcome.most_pinned_bytes > budget_bytes / 2, "it was measured: {outcome:?}");
    assert!(outcome.most_pinned_bytes <= budget_bytes, "{outcome:?}");
    assert_eq!(outcome.over_budget, 0, "four small holds never fill it: {outcome:?}");
    Some(outcome)
}

/// One test of this file at a time: they share the user's RLIMIT_MEMLOCK.
fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Run by the test below, in a process of its own.
#[test]
fn child_under_a_shared_limit() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let outcome = soak(ops(5_000), None).expect("the parent checked");
    println!("{outcome:?}");
    assert!(outcome.acquired > outcome.refused, "{outcome:?}");
}

/// 8 MiB of RLIMIT_MEMLOCK for two processes, which each take a budget below it as if they were alone.
fn child() -> Command {
    let exe = std::env::current_exe().expect("this test");
    let script =
        "ulimit -l 8192 && exec \"$0\" --exact child_under_a_shared_limit --nocapture --test-threads 1";
    // SAFETY: reads a number.
    let is_root = unsafe { libc::geteuid() } == 0;
    let mut command = match is_root {
        true => {
            let mut command = Command::new("setpriv");
            command.args([
                "--reuid",
                "65533",
                "--regid",
                "65533",
                "--clear-groups",
                "--bounding-set",
                "-all",
            ]);
            command.args(["--inh-caps", "-all", "sh"]);
            command
        }
        false => Command::new("sh"),
    };
    command.args(["-c", script]).arg(exe).env(CHILD, "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn two_processes_that_share_a_limit_both_work() {
    if std::env::var_os(CHILD).is_some() || IoUring::new(8).is_err() {
        return;
    }
    let _turn = turn();
    let children: Vec<_> = (0..2).map(|_| child().spawn()).collect();
    for child in children {
        let Ok(child) = child else { return println!("skipped: no setpriv(1) here") };
        let out = child.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&out.stdout);
        if text.contains("skipped") || String::from_utf8_lossy(&out.stderr).contains("Permission denied") {
            return println!("skipped: the other user cannot run this here: {text}");
        }
        assert!(out.status.success(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
        let outcome = text.split("Outcome").nth(1).and_then(|t| t.lines().next()).expect("what it did");
        println!("a process that shares 8 MiB:{outcome}");
    }
}
