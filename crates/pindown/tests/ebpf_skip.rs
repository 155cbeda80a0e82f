//! The skip test. A tracing program whose per-CPU count is taken is not run again, and most are
//! preemptible: with one FIFO thread unmapping and other processes unmapping on the same CPU, a single
//! fexit program on the zap path misses some. This must see those misses, or it proves nothing; with
//! all of the monitor's programs there must be none.
//!
//! It wants a kernel that takes fexit programs (`cargo xtask vm --test pindown:ebpf_skip -- ./ebpf_skip
//! --nocapture`) and root; elsewhere it runs the tracepoint variant, which has nothing to skip.
//! `PINDOWN_SKIP_UNMAPS` says how many unmaps, `PINDOWN_SKIP_SECONDS` for how long at most,
//! `PINDOWN_SKIP_ONLY` (all or zap) which of the two; with `PINDOWN_SKIP_MUST_MISS` the single program
//! must miss some, as it does where preemption is on (`/sys/kernel/debug/sched/preempt`: lazy or full).
#![cfg(all(feature = "ebpf", feature = "test-hooks"))]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pindown::helper::{Limits, Server};
use pindown::monitor::ebpf::{EbpfMonitor, EbpfOptions, Loader, Variant};
use pindown::{Access, Monitor, Notifier, PageRange};

/// All programs that watch memory, but the one on the zap path.
const ALL_BUT_ZAP: &str = "rmap,rmap_pmd,rmap_page,flush,sys_exit";
const HOGS: usize = 3;
/// Unmaps of the FIFO thread each time that it preempts the others.
const BURST: u64 = 8;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(default)
}

struct Role(Child);

impl Role {
    fn start(role: &str, socket: &Path, hidden: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_role", "--nocapture"]).env("PINDOWN_SKIP_ROLE", role);
        command.env("PINDOWN_SKIP_SOCKET", socket).env("PINDOWN_SKIP_HIDDEN", hidden);
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test by itself: the helper and the hogs run here.
#[test]
fn a_role() {
    let Ok(role) = std::env::var("PINDOWN_SKIP_ROLE") else { return };
    let socket = PathBuf::from(std::env::var_os("PINDOWN_SKIP_SOCKET").unwrap());
    if role == "helper" {
        let hidden = std::env::var("PINDOWN_SKIP_HIDDEN").unwrap();
        let server = Server::start_without(&socket, Limits::default(), &hidden).unwrap();
        server.serve().unwrap();
    }
    let monitor = client(&socket).expect("the helper serves the hog too");
    pin_to_cpu_0();
    loop {
        unmap_one(&monitor);
        let _ = monitor.drain(&Notifier::detached());
    }
}

fn client(socket: &Path) -> Option<EbpfMonitor> {
    let mut options = EbpfOptions::default();
    options.loader = Loader::Helper(socket.to_owned());
    EbpfMonitor::open(&options).ok()
}

fn pin_to_cpu_0() {
    // SAFETY: a live, zeroed set, of which bit 0 is set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Whether the program moved the word before munmap returned.
fn unmap_one(monitor: &EbpfMonitor) -> bool {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, prot, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: the page just mapped.
    unsafe { at.cast::<u8>().write_volatile(1) };
    let range = PageRange::covering(at as usize, 4096).unwrap();
    let _ = monitor.subscribe(range, Access::READ_WRITE).unwrap();
    let word = monitor.generation().unwrap();
    let before = word.load(Ordering::Acquire);
    // SAFETY: the page just mapped, to which there are no references.
    unsafe { libc::munmap(at, 4096) };
    let seen = word.load(Ordering::Acquire) != before;
    monitor.unsubscribe(range);
    seen
}

struct Result {
    variant: Variant,
    unmaps: u64,
    missed: u64,
}

/// The FIFO thread among the hogs. `None`: no programs here.
fn storm(name: &str, hidden: &str) -> Option<Result> {
    let dir = std::env::temp_dir().join(format!("pindown-skip-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let socket = dir.join("s");
    let _helper = Role::start("helper", &socket, hidden);
    let until = Instant::now() + Duration::from_secs(setting("PINDOWN_SKIP_PATIENCE", 60));
    let monitor = loop {
        match client(&socket) {
            Some(monitor) => break monitor,
            None if Instant::now() > until => return None,
            None => std::thread::sleep(Duration::from_millis(200)),
        }
    };
    let _hogs: Vec<_> = (0..HOGS).map(|_| Role::start("hog", &socket, hidden)).collect();
    std::thread::sleep(Duration::from_secs(3));
    let result = std::thread::scope(|s| s.spawn(|| unmap_at_high_priority(&monitor)).join().unwrap());
    let _ = std::fs::remove_dir_all(dir);
    Some(result)
}

fn unmap_at_high_priority(monitor: &EbpfMonitor) -> Result {
    pin_to_cpu_0();
    let priority = libc::sched_param { sched_priority: 50 };
    // SAFETY: a live parameter; refused without CAP_SYS_NICE, which the counts then show.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
    let end = Instant::now() + Duration::from_secs(setting("PINDOWN_SKIP_SECONDS", 60));
    let mut result = Result { variant: monitor.variant(), unmaps: 0, missed: 0 };
    while result.unmaps < setting("PINDOWN_SKIP_UNMAPS", 2000) && Instant::now() < end {
        for _ in 0..BURST {
            result.missed += u64::from(!unmap_one(monitor));
            let _ = monitor.drain(&Notifier::detached());
        }
        result.unmaps += BURST;
        std::thread::sleep(Duration::from_micros(30)); // whoever was preempted in a program goes on
    }
    result
}

#[test]
fn one_program_misses_and_the_monitor_does_not() {
    if std::env::var_os("PINDOWN_SKIP_ROLE").is_some() {
        return;
    }
    // SAFETY: no arguments, always succeeds.
    if unsafe { libc::getuid() } != 0 {
        return println!("skipped: a FIFO thread and the programs need root");
    }
    let only = std::env::var("PINDOWN_SKIP_ONLY").unwrap_or_default();
    let nothing = || println!("skipped: no programs can be loaded here");
    if only != "zap" {
        let Some(all) = storm("all", "") else { return nothing() };
        println!("{} all programs: {} of {} missed", all.variant.name(), all.missed, all.unmaps);
        assert_eq!(all.missed, 0);
        if all.variant != Variant::Fexit {
            return;
        }
    }
    if only != "all" {
        let Some(single) = storm("zap", ALL_BUT_ZAP) else { return nothing() };
        println!("fexit zap alone: {} of {} missed", single.missed, single.unmaps);
        if single.missed == 0 {
            assert!(std::env::var_os("PINDOWN_SKIP_MUST_MISS").is_none(), "this load proves nothing");
            println!("nothing missed: no preemption here, or too few unmaps; the run above proves little");
        }
    }
}
