//! On the real kernel: what is pinned stays within the budget, while calls fail on purpose and also when
//! two processes share RLIMIT_MEMLOCK. With PINDOWN_LONG a million operations each.
#![cfg(all(feature = "io-uring", feature = "uffd"))]

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use io_uring::IoUring;
use pindown::provider::io_uring::{UringKey, UringMr, UringProvider};
use pindown::{
    Access, AcquireError, Affinity, Builder, DeregisterFailed, Limit, MonitorChoice, PageRange, Provider,
    ProviderCaps, RegisterError,
};

const MEMORY_BYTES: usize = 48 << 20;
const BUDGET_BYTES: u64 = 6 << 20;
const SHARED_LIMIT_BYTES: u64 = 8 << 20;
/// Set in the processes that share a limit.
const CHILD: &str = "PINDOWN_BUDGET_CHILD";

fn ops(default: u64) -> u64 {
    if std::env::var_os("PINDOWN_LONG").is_some() { 1_000_000 } else { default }
}

/// Bytes that the kernel counts as pinned by a process (proc_pid_status(5), VmPin); `None`: it ended.
fn pinned_bytes(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmPin:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? << 10)
}

/// The ring's provider, but one call in `one_in` fails, as the kernel might have it.
#[derive(Debug)]
struct Faulty {
    ring: UringProvider,
    one_in: u64,
    calls: AtomicU64,
}

impl Faulty {
    fn fails(&self) -> Option<u64> {
        let mut call = self.calls.fetch_add(1, Ordering::Relaxed);
        let drawn = random(&mut call);
        (self.one_in > 0 && drawn.is_multiple_of(self.one_in)).then(|| drawn / self.one_in)
    }
}

// SAFETY: registers and deregisters what `UringProvider` does, or nothing and says so; a registration that
// is not given back is returned.
unsafe impl Provider for Faulty {
    type Mr = UringMr;
    type Key = UringKey;
    fn name(&self) -> &'static str {
        "io-uring that fails"
    }
    fn caps(&self) -> ProviderCaps {
        self.ring.caps()
    }
    fn affinity(&self) -> Affinity {
        self.ring.affinity()
    }
    fn key(&self, mr: &UringMr) -> UringKey {
        self.ring.key(mr)
    }
    unsafe fn register(&self, range: PageRange, access: Access) -> Result<UringMr, RegisterError> {
        let errno = std::io::Error::from_raw_os_error;
        match self.fails().map(|n| n % 3) {
            // SAFETY: the caller's promise.
            None => unsafe { self.ring.register(range, access) },
            Some(0) => Err(RegisterError::Busy { range, source: errno(libc::EAGAIN) }),
            Some(1) => Err(RegisterError::Io { range, source: errno(libc::EIO) }),
            Some(_) => Err(RegisterError::Limit {
                range,
                limit: Limit::Memlock,
                value: None,
                remedy: "none: the test said so",
                source: errno(libc::ENOMEM),
            }),
        }
    }
    fn deregister(&self, mr: UringMr) -> Result<(), DeregisterFailed<UringMr>> {
        match self.fails() {
            None => self.ring.deregister(mr),
            Some(_) => Err(DeregisterFailed { mr, source: std::io::Error::from_raw_os_error(libc::EBUSY) }),
        }
    }
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
    /// By the kernel or the test's faults.
    refused: u64,
    /// By the cache itself.
    over_budget: u64,
    most_pinned_bytes: u64,
    budget_bytes: u64,
    lowered: u64,
    evictions: u64,
    deregister_failures: u64,
    invalidated: u64,
}

/// Gives the whole pages of a part of the test's memory back: what is there next is new.
fn anew(addr: usize, len: usize) {
    let (first, end) = (addr.next_multiple_of(4096), (addr + len) & !4095);
    if first < end {
        // SAFETY: whole pages inside the vector's allocation, which nobody reads.
        let rc = unsafe {
            libc::madvise(std::ptr::with_exposed_provenance_mut(first), end - first, libc::MADV_DONTNEED)
        };
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    }
}

fn cache(max_bytes: Option<u64>, one_in: u64) -> Option<pindown::Cache<Faulty>> {
    let ring = IoUring::new(8).map_err(|error| println!("skipped: no io_uring here: {error}")).ok()?;
    let ring = UringProvider::new(&ring).expect("a table of buffers");
    let faulty = Faulty { ring, one_in, calls: AtomicU64::new(0) };
    let builder = Builder::new(faulty).monitor(MonitorChoice::Uffd).export(false);
    let builder = if let Some(bytes) = max_bytes { builder.max_bytes(bytes) } else { builder };
    builder.build().map_err(|error| println!("skipped: no cache with uffd here: {error}")).ok()
}

/// Random requests of 4 KiB to 512 KiB, some held for a while, over eight times the budget; now and then
/// memory is mapped anew under its registrations.
fn soak(ops: u64, max_bytes: Option<u64>, one_in: u64) -> Option<Outcome> {
    let cache = cache(max_bytes, one_in)?;
    let mut memory = vec![1u8; MEMORY_BYTES];
    let base = memory.as_mut_ptr();
    base.expose_provenance();
    let (mut outcome, mut held, mut state) = (Outcome::default(), Vec::new(), 7u64);
    outcome.budget_bytes = cache.max_bytes();
    for op in 0..ops {
        let len = 4096usize << (random(&mut state) % 8);
        let at = random(&mut state) as usize % (MEMORY_BYTES - len);
        // SAFETY: nothing is transferred, and nobody reads the memory.
        match unsafe { cache.acquire(base.add(at), len, Access::READ) } {
            Ok(registration) => {
                outcome.acquired += 1;
                held.push(registration);
            }
            Err(AcquireError::Budget { .. }) => outcome.over_budget += 1,
            Err(AcquireError::Register(_)) => outcome.refused += 1,
            Err(other) => panic!("not an answer to a limit: {other:?}"),
        }
        if held.len() > 3 || outcome.refused > 0 && op % 7 == 0 {
            held.clear();
        }
        if op % 64 == 0 {
            anew(base.addr() + at, len);
        }
        if op % 16 == 0 {
            outcome.most_pinned_bytes = outcome.most_pinned_bytes.max(pinned_bytes("self").expect("VmPin"));
        }
    }
    let stats = cache.stats();

    (outcome.lowered, outcome.evictions) = (stats.budget_lowered, stats.evictions);
    (outcome.deregister_failures, outcome.invalidated) = (stats.deregister_failures, stats.invalidated);
    Some(outcome)
}

fn soak_within(budget_bytes: u64, one_in: u64) -> Option<Outcome> {
    let outcome = soak(ops(20_000), Some(budget_bytes), one_in)?;
    println!("{outcome:?}");
    assert!(outcome.most_pinned_bytes > budget_bytes / 2, "it was measured: {outcome:?}");
    assert!(outcome.most_pinned_bytes <= budget_bytes, "{outcome:?}");
    assert_eq!(outcome.over_budget, 0, "four small holds never fill it: {outcome:?}");
    assert!(outcome.evictions > 1000 && outcome.invalidated > 0, "{outcome:?}");
    Some(outcome)
}

#[test]
fn pinned_memory_never_exceeds_the_budget() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let _turn = turn();
    // RLIMIT_MEMLOCK is the user's: another process of the user may eat it for a while.
    let refused_none =
        (0..3).any(|_| soak_within(BUDGET_BYTES, 0).is_none_or(|outcome| outcome.refused == 0));
    assert!(refused_none, "four small holds never fill it");
}

#[test]
fn nor_while_calls_fail() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let _turn = turn();
    let Some(outcome) = soak_within(BUDGET_BYTES, 50) else { return };
    assert!(outcome.refused > 10 && outcome.deregister_failures > 10 && outcome.lowered > 10, "{outcome:?}");
    assert!(outcome.acquired > outcome.refused * 10, "{outcome:?}");
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
    let outcome = soak(ops(5_000), None, 0).expect("the parent checked");
    println!("{outcome:?}");
    assert!(outcome.acquired > outcome.refused, "{outcome:?}");
    assert!(outcome.budget_bytes < SHARED_LIMIT_BYTES, "{outcome:?}");
    assert!(outcome.most_pinned_bytes <= outcome.budget_bytes, "{outcome:?}");
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

/// Stopped at once, so that what one unpins and the other pins in between is not counted twice.
fn pinned_together(children: &[Child]) -> Option<u64> {
    let signal = |which| {
        // SAFETY: sends a signal to a child that was not waited for.
        children.iter().for_each(|c| _ = unsafe { libc::kill(c.id() as i32, which) });
    };
    signal(libc::SIGSTOP);
    let stopped = |c: &Child| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", c.id())).unwrap_or_default();
        status.contains("State:\tT") || status.contains("State:\tZ")
    };
    while !children.iter().all(stopped) {
        std::thread::sleep(Duration::from_micros(200));
    }
    let pinned: Option<Vec<u64>> = children.iter().map(|c| pinned_bytes(&c.id().to_string())).collect();
    signal(libc::SIGCONT);
    pinned.map(|both| both.iter().sum())
}

fn report(out: &std::process::Output) -> Option<&'static str> {
    let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if text.contains("skipped") || errors.contains("Permission denied") {
        return Some("skipped: the other user cannot run this here");
    }
    assert!(out.status.success(), "{text}\n{errors}");
    let outcome = text.split("Outcome").nth(1).and_then(|t| t.lines().next()).expect("what it did");
    println!("a process that shares 8 MiB:{outcome}");
    None
}

#[test]
fn two_processes_that_share_a_limit_both_work() {
    if std::env::var_os(CHILD).is_some() || IoUring::new(8).is_err() {
        return;
    }
    let _turn = turn();
    let Ok(children) = (0..2).map(|_| child().spawn()).collect::<Result<Vec<_>, _>>() else {
        return println!("skipped: no setpriv(1) here");
    };
    let (mut most, mut samples) = (0, 0);
    while let Some(pinned) = pinned_together(&children) {
        (most, samples) = (most.max(pinned), samples + 1);
        std::thread::sleep(Duration::from_millis(10));
    }
    let outputs: Vec<_> = children.into_iter().map(|c| c.wait_with_output().expect("it ends")).collect();
    if let Some(why) = outputs.iter().find_map(report) {
        return println!("{why}");
    }
    println!("{most} bytes pinned together at most, in {samples} looks");
    assert!(most <= SHARED_LIMIT_BYTES && most > SHARED_LIMIT_BYTES / 2, "{most} in {samples} looks");
}
