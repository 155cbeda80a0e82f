//! What the eBPF monitor costs here, interleaved in one run; medians, each with its spread (the 10th
//! and 90th percentile of the rounds).
//!
//! `cargo run --release --features ebpf --example ebpf_cost` (root)

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pindown::monitor::ebpf::{EbpfMonitor, EbpfOptions};
use pindown::{Access, Monitor, Notifier, PageRange};

const ROUNDS: usize = 31;
const CYCLES: u32 = 2000;
const CHECKS: u32 = 20_000_000;

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

fn show(name: &str, mut ns: Vec<f64>, base: Option<f64>) -> f64 {
    ns.sort_by(f64::total_cmp);
    let at = |q: usize| ns[ns.len() * q / 100];
    let median = at(50);
    let over = base.map_or(String::new(), |b| format!("  {:+.1} %", (median / b - 1.0) * 100.0));
    println!("{name:34} {median:9.2} ns  [{:.2} .. {:.2}]{over}", at(10), at(90));
    median
}

/// A range so wide that every unmap of this process passes the filter.
fn watch_everything(monitor: &EbpfMonitor) {
    let low = PageRange::new(1 << 20, (1 << 47) - (1 << 20)).expect("a range");
    let _ = monitor.subscribe(low, Access::READ_WRITE);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = EbpfOptions::default();
    let [mut off, mut own, mut filtered] = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        off.push(cycle_ns(None));
        let monitor = EbpfMonitor::open(&options)?;
        filtered.push(cycle_ns(Some(&monitor)));
        watch_everything(&monitor);
        own.push(cycle_ns(Some(&monitor)));
    }
    let monitor = EbpfMonitor::open(&options)?;
    println!("variant {}", monitor.variant().name());
    let (mut loads, mut checks, mut unrelated, mut without) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let word = monitor.generation().expect("it has one");
    let bare = AtomicU64::new(1);
    for _ in 0..ROUNDS {
        loads.push(load_ns(&bare));
        checks.push(check_ns(word));
    }
    drop(monitor);
    for _ in 0..ROUNDS / 2 {
        without.push(in_child(|| cycle_ns(None)));
        let monitor = EbpfMonitor::open(&options)?;
        watch_everything(&monitor);
        unrelated.push(in_child(|| cycle_ns(None)));
    }
    show("bare acquire load", loads, None);
    show("check: load and compare", checks, None);
    let base = show("mmap+touch+munmap, off", off, None);
    show("  watched, filtered out", filtered, Some(base));
    show("  watched, reported", own, Some(base));
    let base = show("mmap+touch+munmap, child, off", without, None);
    show("  unrelated process, on", unrelated, Some(base));
    Ok(())
}

/// Measures in a forked child, which is not watched.
fn in_child(measure: impl Fn() -> f64) -> f64 {
    let mut pipe = [0; 2];
    // SAFETY: two live integers; the child measures, writes eight bytes and ends without unwinding.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        if libc::fork() == 0 {
            let bits = measure().to_bits();
            libc::write(pipe[1], (&raw const bits).cast(), 8);
            libc::_exit(0);
        }
        let mut bits = 0u64;
        libc::read(pipe[0], (&raw mut bits).cast(), 8);
        libc::close(pipe[0]);
        libc::close(pipe[1]);
        libc::wait(std::ptr::null_mut());
        f64::from_bits(bits)
    }
}
