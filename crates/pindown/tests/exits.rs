//! The end of a process while transfers run: `exit` from any thread, exit handlers that use or drop the
//! cache, a cache that is never dropped, exec. No end hangs or crashes, and what runs meanwhile is right.
#![cfg(all(feature = "io-uring", feature = "uffd"))]

mod support;

use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use pindown::{Access, MonitorChoice, PAGE_SIZE};
use support::child::{again, ended_within, role};
use support::moving::Moving;
use support::{Map, status_kib};

/// What an exit handler finds: it can get nothing by argument.
static KEPT: Mutex<Option<Moving>> = Mutex::new(None);
static FOREVER: OnceLock<pindown::Cache<pindown::provider::io_uring::UringProvider>> = OnceLock::new();
static TRANSFERS: AtomicU64 = AtomicU64::new(0);

/// The status of a process that ended as it should have; 101 is a panic, a signal a crash.
const AS_MEANT: i32 = 42;
/// It said why it cannot.
const SKIPPED: i32 = 43;

/// Starts this binary again in `role`, and looks at how that ends.
fn ends_well(test: &str, role: &str) {
    let mut child = again(test, role).stdout(Stdio::inherit()).spawn().expect("this binary starts");
    match ended_within(&mut child, Duration::from_secs(60)).map(|status| (status, status.code())) {
        Some((_, Some(AS_MEANT | SKIPPED))) => {}
        Some((status, _)) => panic!("{role}: {status}"),
        None => panic!("{role}: it hangs"),
    }
}

fn exit(status: i32) -> ! {
    // SAFETY: `exit(3)` from any thread is what is tested; handlers and destructors run.
    unsafe { libc::exit(status) }
}

fn moving() -> Moving {
    Moving::new().unwrap_or_else(|| exit(SKIPPED))
}

/// Threads that send from memory that comes and goes, until the process ends.
fn transfer_for_ever() {
    for n in 0..3u8 {
        let mut moving = moving();
        std::thread::spawn(move || {
            loop {
                let mut bytes = vec![n; 16 * PAGE_SIZE]; // malloc maps and unmaps it
                bytes[PAGE_SIZE] = TRANSFERS.fetch_add(1, Ordering::Relaxed) as u8;
                assert_eq!(moving.send(bytes.as_ptr(), bytes.len()), bytes, "stale bytes");
            }
        });
    }
    while TRANSFERS.load(Ordering::Relaxed) < 50 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Has `handler` run at exit, after those that are registered later.
fn at_exit(handler: extern "C" fn()) {
    // SAFETY: a function of this program.
    assert_eq!(unsafe { libc::atexit(handler) }, 0);
}

fn send_some(moving: &mut Moving) {
    let bytes = vec![b'x'; 4 * PAGE_SIZE];
    assert_eq!(moving.send(bytes.as_ptr(), bytes.len()), bytes);
}

/// Runs `body`, whose panic may not leave a C function.
fn or_abort(body: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err() {
        std::process::abort();
    }
}

extern "C" fn use_it() {
    or_abort(|| send_some(KEPT.lock().unwrap().as_mut().expect("kept")));
}

extern "C" fn drop_it() {
    or_abort(|| {
        let mut kept = KEPT.lock().unwrap().take().expect("kept");
        send_some(&mut kept);
    });
}

extern "C" fn close_it() {
    or_abort(|| KEPT.lock().unwrap().take().expect("kept").close());
}

#[test]
fn exit_while_transfers_run() {
    let Some(role) = role() else {
        return ["main", "thread"].iter().for_each(|role| ends_well("exit_while_transfers_run", role));
    };
    transfer_for_ever();
    if role == "main" {
        exit(AS_MEANT);
    }
    std::thread::spawn(|| exit(AS_MEANT));
    loop {
        std::thread::park();
    }
}

#[test]
fn exit_handlers_that_use_the_cache() {
    let Some(role) = role() else {
        let roles = ["use then drop", "drop", "close", "thread drop", "registered first"];
        return roles.iter().for_each(|role| ends_well("exit_handlers_that_use_the_cache", role));
    };
    if role == "registered first" {
        at_exit(drop_it); // before anything that the cache itself has run at exit
    }
    transfer_for_ever();
    *KEPT.lock().unwrap() = Some(moving());
    send_some(KEPT.lock().unwrap().as_mut().unwrap());
    match role.as_str() {
        "use then drop" => {
            at_exit(drop_it);
            at_exit(use_it);
        }
        "close" => at_exit(close_it),
        "registered first" => {}
        _ => at_exit(drop_it),
    }
    if role.starts_with("thread") {
        let _ = std::thread::spawn(|| exit(AS_MEANT)).join();
    }
    exit(AS_MEANT);
}

/// A cache in a static, with registrations held for ever, by a thread that is gone and by one that is not.
#[test]
fn a_cache_that_is_never_dropped() {
    if role().is_none() {
        return ends_well("a_cache_that_is_never_dropped", "never");
    }
    let mut moving = moving();
    send_some(&mut moving);
    let cache = FOREVER.get_or_init(|| moving.cache.clone());
    let memory: &'static [u8] = vec![3; 8 * PAGE_SIZE].leak();
    for part in memory.chunks(PAGE_SIZE) {
        // SAFETY: nothing is received.
        let hold = unsafe { cache.acquire(part.as_ptr(), part.len(), Access::READ) }.unwrap();
        std::thread::spawn(|| std::mem::forget(hold)).join().unwrap();
    }
    transfer_for_ever();
    exit(AS_MEANT)
}

/// Nothing of the cache lives on in what a process becomes, and that may have a cache of its own.
#[test]
fn nothing_is_left_after_exec() {
    const NAME: &str = "nothing_is_left_after_exec";
    match role().as_deref() {
        None => ["uffd", "ebpf"].iter().for_each(|monitor| ends_well(NAME, monitor)),
        Some("after") => {
            assert_eq!(ours_among_descriptors(), Vec::<String>::new());
            assert_eq!((status_kib("VmPin"), status_kib("VmLck")), (0, 0));
            send_some(&mut moving());
            exit(AS_MEANT)
        }
        Some(monitor) => {
            let mut moving = with_monitor(monitor);
            transfer_for_ever();
            let map = Map::filled(8, 1);
            let _held = moving.hold(map.ptr(), map.len()).unwrap();
            send_some(&mut moving);
            assert!(!ours_among_descriptors().is_empty() && status_kib("VmPin") >= 32);
            panic!("exec: {}", again(NAME, "after").exec());
        }
    }
}

fn with_monitor(name: &str) -> Moving {
    #[cfg(feature = "ebpf")]
    if name == "ebpf" {
        return Moving::with(MonitorChoice::Ebpf).unwrap_or_else(|why| {
            println!("skipped: {why}");
            exit(SKIPPED)
        });
    }
    let _ = (name, MonitorChoice::Uffd);
    moving()
}

/// What kinds of descriptors this process has that a cache or its ring would make.
fn ours_among_descriptors() -> Vec<String> {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets =
        links.filter_map(|l| Some(std::fs::read_link(l.path()).ok()?.to_string_lossy().into_owned()));
    let kinds = ["io_uring", "userfaultfd", "bpf", "pindown", "/proc/", "perf_event"];
    let of_ours = targets.filter(|t| kinds.iter().any(|k| t.contains(k)));
    // The directory that is being read.
    of_ours.filter(|t| !t.ends_with("/fd")).collect()
}
