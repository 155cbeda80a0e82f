//! Against this kernel. Without CAP_BPF and CAP_PERFMON each says so and passes.

mod reuse;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pindown_core::{Access, Drained, EventKind, Monitor, MonitorError, Notifier, PageRange, Subscription};

use super::hooks::{Hook, Kernel, number};
use super::{EbpfMonitor, EbpfOptions, Loader, Variant};
use crate::sys::bpf_scratch::Scratch;

fn started(options: &EbpfOptions) -> Option<EbpfMonitor> {
    match EbpfMonitor::open(options) {
        Ok(monitor) => {
            monitor.start(Notifier::detached()).expect("the self-test passes");
            Some(monitor)
        }
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

fn own() -> EbpfOptions {
    EbpfOptions { loader: Loader::Own, ..EbpfOptions::default() }
}

fn watch(monitor: &EbpfMonitor, range: PageRange) {
    assert_eq!(monitor.subscribe(range, Access::READ_WRITE).unwrap(), Subscription::Events);
}

/// What was reported since the last call, or `None` when something was lost.
fn taken(monitor: &EbpfMonitor) -> Option<Vec<(PageRange, EventKind)>> {
    let notifier = Notifier::detached();
    let drained = monitor.drain(&notifier);
    let all: Option<Vec<_>> = notifier.take_detached().into_iter().collect();
    if matches!(drained, Drained::UpTo(_)) { all } else { None }
}

fn saw(monitor: &EbpfMonitor, range: PageRange) -> bool {
    taken(monitor).is_none_or(|all| all.iter().any(|(r, _)| r.overlaps(range)))
}

/// All programs of a variant that report something, or `None` where the kernel lacks a function.
fn programs(variant: Variant) -> Option<Vec<Hook>> {
    let btf = aya::Btf::from_sys_fs().ok()?;
    let kernel = Kernel(&btf);
    let hooks = match variant {
        Variant::Tracepoint => kernel.tracepoint_hooks(),
        Variant::Fexit => kernel.fexit_hooks().ok()?,
    };
    Some(hooks.into_iter().filter(|h| h.number != number::NONE).collect())
}

/// Programs that only some machines wake: they want io_uring, or huge pages.
fn may_sleep(hook: &Hook) -> bool {
    [number::URING, number::HUGETLB, number::RMAP_PMD].contains(&hook.number)
}

fn each_hidden_program_is_noticed_and_named(variant: Variant) {
    for hook in programs(variant).unwrap_or_default() {
        let hidden = Some(hook.program.to_owned());
        let options = EbpfOptions { variant: Some(variant), hidden, ..own() };
        let Ok(monitor) = EbpfMonitor::open(&options).map_err(|e| println!("skipped: {e}")) else { return };
        match monitor.start(Notifier::detached()) {
            Err(MonitorError::SelfTest { event }) => {
                assert!(event.contains(&hook.name()), "{} is hidden: {event}", hook.name());
                println!("{} hidden: {event}", hook.name());
            }
            Ok(()) if may_sleep(&hook) => println!("skipped: nothing here wakes {}", hook.name()),
            other => panic!("{} is hidden, and start says {other:?}", hook.name()),
        }
    }
}

#[test]
fn each_hidden_tracepoint_program_is_noticed_and_named() {
    each_hidden_program_is_noticed_and_named(Variant::Tracepoint);
}

#[test]
fn each_hidden_fexit_program_is_noticed_and_named() {
    each_hidden_program_is_noticed_and_named(Variant::Fexit);
}

#[test]
fn each_munmap_is_seen_before_it_returns() {
    let Some(monitor) = started(&own()) else { return };
    let word = monitor.generation().unwrap();
    let mut missed = 0;
    for round in 0..munmaps(1_000_000) {
        let memory = Scratch::anonymous(1).unwrap();
        let range = memory.range();
        watch(&monitor, range);
        let before = word.load(Ordering::Acquire);
        memory.unmap().unwrap();
        missed += u32::from(word.load(Ordering::Acquire) == before);
        monitor.unsubscribe(range);
        if round % 1000 == 0 {
            assert!(saw(&monitor, range));
        }
    }
    assert_eq!(missed, 0);
}

/// A tenth; all with `PINDOWN_LONG` (half a minute); `PINDOWN_TEST_SCALE` says by what else to divide.
fn munmaps(full: u32) -> u32 {
    let scale = std::env::var("PINDOWN_TEST_SCALE").ok().and_then(|s| s.parse::<u32>().ok());
    let usual = if std::env::var_os("PINDOWN_LONG").is_some() { 1 } else { 10 };
    full / scale.unwrap_or(usual)
}

const LONGEST: std::time::Duration = std::time::Duration::from_secs(60);
const ENOUGH: u64 = u64::MAX;

#[test]
fn another_thread_sees_each_munmap_too() {
    let began = std::time::Instant::now();
    let Some(monitor) = started(&own()) else { return };
    let (done, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let rounds = u64::from(munmaps(100_000));
    let word = monitor.generation().unwrap();
    let first = word.load(Ordering::Acquire);
    let missed = std::thread::scope(|scope| {
        let observer = scope.spawn(|| {
            let (mut last, mut missed) = (first, 0);
            for round in 1..=rounds {
                while done.load(Ordering::Acquire) < round {
                    std::thread::yield_now();
                }
                if done.load(Ordering::Acquire) == ENOUGH {
                    break;
                }
                let now = word.load(Ordering::Acquire);
                missed += u32::from(now == last);
                last = now;
                seen.store(round, Ordering::Release);
            }
            missed
        });
        for round in 1..=rounds {
            if began.elapsed() > LONGEST {
                println!("a busy machine: ended after {round} rounds");
                done.store(ENOUGH, Ordering::Release);
                break;
            }
            let memory = Scratch::anonymous(1).unwrap();
            let range = memory.range();
            let _ = monitor.subscribe(range, Access::READ_WRITE).unwrap(); // a panic would strand the observer
            memory.unmap().unwrap();
            done.store(round, Ordering::Release);
            while seen.load(Ordering::Acquire) != round {
                std::thread::yield_now();
            }
            monitor.unsubscribe(range);
            taken(&monitor);
        }
        observer.join().unwrap()
    });
    assert_eq!(missed, 0);
}

#[test]
fn another_process_cuts_a_file() {
    let Some(monitor) = started(&own()) else { return };
    let (file, memory) = Scratch::memfd(16).unwrap();
    watch(&monitor, memory.range());
    let path = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&file));
    for (program, args) in [
        ("fallocate", vec!["-p", "-o", "0", "-l", "8192", &path]),
        ("truncate", vec!["-s", "4096", &path]),
        ("sh", vec!["-c", ": >$0", &path]),
    ] {
        file.set_len(16 * 4096).unwrap();
        memory.touch();
        taken(&monitor);
        let status = Command::new(program).args(&args).status();
        let Ok(status) = status else {
            println!("skipped: no {program}");
            continue;
        };
        assert!(status.success(), "{program} {args:?}");
        assert!(saw(&monitor, memory.range()), "{program} {args:?} went unseen");
    }
}

#[test]
fn what_is_not_registered_does_not_disturb() {
    let Some(monitor) = started(&own()) else { return };
    let around = Scratch::anonymous(32 << 8).unwrap(); // 32 MiB that no other test touches
    let watched = PageRange::new(around.range().end() - 4096, around.range().end()).unwrap();
    watch(&monitor, watched);
    taken(&monitor);
    let word = monitor.generation().unwrap();
    let before = word.load(Ordering::Acquire);
    let slices = |i: usize| around.slice(i, 1);
    for i in 0..500 {
        slices(i).advise(libc::MADV_DONTNEED).unwrap();
    }
    let outside = word.load(Ordering::Acquire) - before;
    let last = (32 << 8) - 1;
    for _ in 0..500 {
        slices(last).advise(libc::MADV_DONTNEED).unwrap();
    }
    let inside = word.load(Ordering::Acquire) - before - outside;
    assert!(outside < 10, "{outside} bumps for unregistered memory"); // other tests' chunks may collide
    assert!(inside >= 500, "{inside}");
}

#[test]
fn a_full_ring_makes_everything_stale() {
    let options = EbpfOptions { ring_bytes: Some(4096), ..own() };
    let Some(monitor) = started(&options) else { return };
    let memory = Scratch::anonymous(4).unwrap();
    watch(&monitor, memory.range());
    taken(&monitor);
    for _ in 0..200 {
        memory.advise(libc::MADV_DONTNEED).unwrap();
    }
    assert_eq!(taken(&monitor), None, "128 records fit, 200 were written, and nothing is said to be lost");
    assert_eq!(taken(&monitor), Some(Vec::new()));
    memory.advise(libc::MADV_DONTNEED).unwrap();
    assert!(taken(&monitor).is_some_and(|all| !all.is_empty()), "it does not recover");
}

#[test]
fn private_file_mappings_are_not_covered_by_tracepoints() {
    let options = EbpfOptions { variant: Some(Variant::Tracepoint), ..own() };
    let Some(monitor) = started(&options) else { return };
    let memory = Scratch::private_of(&std::env::current_exe().unwrap()).unwrap();
    let answer = monitor.subscribe(memory.range(), Access::READ).unwrap();
    assert!(matches!(answer, Subscription::Uncacheable(why) if why.contains("private file")), "{answer:?}");
    monitor.unsubscribe(memory.range());
}

#[test]
fn mprotect_matters_to_remote_writers_only() {
    let Some(monitor) = started(&own()) else { return };
    let around = Scratch::anonymous(16 << 8).unwrap(); // chunks of their own
    let local = around.slice(0, 4);
    watch(&monitor, local.range());
    taken(&monitor);
    local.protect().unwrap();
    let protects =
        |all: Vec<(PageRange, EventKind)>| all.iter().filter(|e| e.1 == EventKind::Protect).count();
    assert_eq!(taken(&monitor).map(protects), Some(0));
    let remote = around.slice(8 << 8, 4);
    monitor.subscribe(remote.range(), Access::REMOTE_WRITE).unwrap();
    remote.protect().unwrap();
    assert!(taken(&monitor).map(protects) >= Some(1));
}

#[test]
fn several_monitors_in_one_process_each_see_everything() {
    let monitors: Vec<_> = (0..4).map_while(|_| started(&own())).collect();
    let memory = Scratch::anonymous(1).unwrap();
    monitors.iter().for_each(|m| watch(m, memory.range()));
    memory.advise(libc::MADV_DONTNEED).unwrap();
    assert!(monitors.iter().all(|m| saw(m, memory.range())));
}

#[test]
fn a_forked_child_is_not_its_parent() {
    let Some(monitor) = started(&own()) else { return };
    let memory = Scratch::anonymous(1).unwrap();
    watch(&monitor, memory.range());
    taken(&monitor);
    // SAFETY: the child makes no call that another thread's lock could stop, and ends with _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = matches!(monitor.subscribe(memory.range(), Access::READ), Err(MonitorError::Forked));
        let lost = matches!(monitor.drain(&Notifier::detached()), Drained::Lost(_));
        let discarded = memory.advise(libc::MADV_DONTNEED).is_ok();
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(if refused && lost && discarded { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: reaps the child just made.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    assert!(!saw(&monitor, memory.range()), "what the child does to its memory is not the parent's");
    memory.advise(libc::MADV_DONTNEED).unwrap();
    assert!(saw(&monitor, memory.range()), "the child closed copies of the links, not the links");
}

/// In a process of its own, since it ends caching for every monitor of the process.
#[test]
#[cfg(feature = "io-uring")]
fn io_uring_madvise_ends_caching_in_the_tracepoint_variant() {
    let name = "monitor::ebpf::tests::io_uring_madvise_in_its_own_process";
    let mut command = Command::new(std::env::current_exe().unwrap());
    assert!(command.args(["--exact", name, "--ignored", "--nocapture"]).status().unwrap().success());
}

#[test]
#[ignore = "run by the test above"]
#[cfg(feature = "io-uring")]
fn io_uring_madvise_in_its_own_process() {
    let options = EbpfOptions { variant: Some(Variant::Tracepoint), ..own() };
    let Some(monitor) = started(&options) else { return };
    let memory = Scratch::anonymous(1).unwrap();
    watch(&monitor, memory.range());
    taken(&monitor);
    if let Err(e) = memory.discard_through_ring() {
        return println!("skipped: no io_uring: {e}");
    }
    assert_eq!(taken(&monitor), None, "everything is stale");
    let answer = monitor.subscribe(memory.range(), Access::READ).unwrap();
    assert!(matches!(answer, Subscription::Uncacheable(why) if why.contains("io_uring")), "{answer:?}");
}
