//! What the eBPF monitor costs here, interleaved in one run: medians of the rounds, each with its spread
//! (the 10th and 90th percentile), and the median of what each round says about the round's own base.
//!
//! In the lab, `cargo xtask vm --count --file .../ebpf_cost -- ./ebpf_cost` counts instructions instead; a
//! few rounds (`PINDOWN_COST_ROUNDS`) are enough there.
//!
//! `cargo run --release --features ebpf --example ebpf_cost` (root)

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pindown::monitor::ebpf::{EbpfMonitor, EbpfOptions};
use pindown::{Access, Monitor, Notifier, PageRange};

const ROUNDS: usize = 41;
const CYCLES: u32 = 3000;
const CHECKS: u32 = 5_000_000;

/// mmap, touch, munmap of one page: nanoseconds each.
fn cycle_ns(watch: Option<&EbpfMonitor>) -> f64 {
    let start = Instant::now();
    for _ in 0..CYCLES {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, touched, and unmapped again; no reference to it exists.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), 4096, prot, flags, -1, 0);
            at.cast::<u8>().write_volatile(1);
            libc::munmap(at, 4096);
        }
    }
    let ns = start.elapsed().as_nanos() as f64 / f64::from(CYCLES);
    watch.map(|m| m.drain(&Notifier::detached()));
    ns
}

fn load_ns(word: &AtomicU64) -> f64 {
    let start = Instant::now();
    for _ in 0..CHECKS {
        black_box(black_box(word).load(Ordering::Acquire));
    }
    start.elapsed().as_nanos() as f64 / f64::from(CHECKS)
}

fn check_ns(word: &AtomicU64) -> f64 {
    let seen = word.load(Ordering::Acquire);
    let mut moved = 0u32;
    let start = Instant::now();
    for _ in 0..CHECKS {
        moved += u32::from(black_box(word).load(Ordering::Acquire) != black_box(seen));
    }
    black_box(moved);
    start.elapsed().as_nanos() as f64 / f64::from(CHECKS)
}

fn at(sorted: &[f64], percent: usize) -> f64 {
    sorted[sorted.len() * percent / 100]
}

fn sorted(mut all: Vec<f64>) -> Vec<f64> {
    all.sort_by(f64::total_cmp);
    all
}

fn show(name: &str, ns: &[f64], base: Option<&[f64]>) {
    let all = sorted(ns.to_vec());
    print!("{name:34} {:9.2} ns  [{:.2} .. {:.2}]", at(&all, 50), at(&all, 10), at(&all, 90));
    if let Some(base) = base {
        let over = sorted(ns.iter().zip(base).map(|(on, off)| (on / off - 1.0) * 100.0).collect());
        print!("  {:+.1} %  [{:+.1} .. {:+.1}]", at(&over, 50), at(&over, 25), at(&over, 75));
    }
    println!();
}

/// A range so wide that every unmap of this process passes the filter.
fn watch_everything(monitor: &EbpfMonitor) {
    let low = PageRange::new(1 << 20, (1 << 47) - (1 << 20)).expect("a range");
    let _ = monitor.subscribe(low, Access::READ_WRITE);
}

/// A child, which nobody watches, measures when it is asked to.
struct Unrelated {
    ask: libc::c_int,
    answer: libc::c_int,
}

impl Unrelated {
    fn start() -> Self {
        let (mut ask, mut answer) = ([0; 2], [0; 2]);
        // SAFETY: live integers; the child is single-threaded, as is this process so far, and ends
        // without unwinding when nobody asks any more.
        unsafe {
            assert_eq!((libc::pipe(ask.as_mut_ptr()), libc::pipe(answer.as_mut_ptr())), (0, 0));
            if libc::fork() == 0 {
                libc::close(ask[1]);
                let mut byte = 0u8;
                while libc::read(ask[0], (&raw mut byte).cast(), 1) == 1 {
                    let bits = cycle_ns(None).to_bits();
                    libc::write(answer[1], (&raw const bits).cast(), 8);
                }
                libc::_exit(0);
            }
        }
        Self { ask: ask[1], answer: answer[0] }
    }

    fn measure(&self) -> f64 {
        let mut bits = 0u64;
        // SAFETY: one byte out of, and eight bytes into, live memory.
        unsafe {
            libc::write(self.ask, [0u8].as_ptr().cast(), 1);
            assert_eq!(libc::read(self.answer, (&raw mut bits).cast(), 8), 8);
        }
        f64::from_bits(bits)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::var("PINDOWN_COST_ROUNDS").ok().and_then(|s| s.parse().ok()).unwrap_or(ROUNDS);
    let options = EbpfOptions::default();
    let child = Unrelated::start();
    let [mut off, mut own, mut filtered, mut alone, mut unrelated, mut loads, mut checks] =
        [const { Vec::new() }; 7];
    let bare = AtomicU64::new(1);
    for _ in 0..rounds {
        alone.push(child.measure());
        off.push(cycle_ns(None));
        let monitor = EbpfMonitor::open(&options)?;
        filtered.push(cycle_ns(Some(&monitor)));
        watch_everything(&monitor);
        own.push(cycle_ns(Some(&monitor)));
        unrelated.push(child.measure());
        loads.push(load_ns(&bare));
        checks.push(check_ns(monitor.generation().expect("it has one")));
    }
    println!("variant {}, {rounds} rounds", EbpfMonitor::open(&options)?.variant().name());
    show("bare acquire load", &loads, None);
    show("check: load and compare", &checks, Some(&loads));
    show("mmap+touch+munmap, off", &off, None);
    show("  watched, filtered out", &filtered, Some(&off));
    show("  watched, reported", &own, Some(&off));
    show("mmap+touch+munmap, unrelated, off", &alone, None);
    show("  unrelated process, on", &unrelated, Some(&alone));
    Ok(())
}
