//! One thread gets the address that another is still unmapping.
//!
//! munmap(2) lets others map at its addresses before it returns, and the tracepoint variant reports it
//! when it returns. Until new mappings were reported too, a second thread could be given the address,
//! and find what the first had registered there: the second, of a higher priority, waits for the lock that
//! munmap holds, and runs before munmap gets any further. That wants a preemptible kernel (the lab's).

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use super::*;

/// Enough for the second thread to come while they are unmapped.
const PAGES: usize = 256;

/// On one CPU; `urgent`: before all others there (root only).
fn share_a_cpu(urgent: bool) {
    let priority = libc::sched_param { sched_priority: 10 };
    // SAFETY: a live, zeroed set, of which bit 0 is set, and a live parameter.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
        if urgent {
            libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority);
        }
    }
}

/// How often the second thread got the address, and how often the word was then as it was when the
/// first had registered it.
fn race(monitor: &EbpfMonitor) -> (u64, u64) {
    let word = monitor.generation().unwrap();
    let (address, generation) = (AtomicUsize::new(0), AtomicU64::new(0));
    let (reused, unmoved) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            share_a_cpu(true);
            while !stop.load(SeqCst) {
                std::thread::sleep(Duration::from_micros(20));
                let memory = Scratch::anonymous(PAGES).unwrap();
                let at = memory.range().start();
                let (seen, then) = (address.load(SeqCst), generation.load(SeqCst));
                let now = word.load(SeqCst);
                // The same round of the other thread: it cannot have got the address again.
                if seen == at && address.load(SeqCst) == at {
                    reused.fetch_add(1, SeqCst);
                    unmoved.fetch_add(u64::from(now == then), SeqCst);
                }
                drop(memory);
            }
        });
        share_a_cpu(false);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2) {
            let memory = Scratch::anonymous(PAGES).unwrap();
            let range = memory.range();
            let _ = monitor.subscribe(range, Access::READ_WRITE);
            generation.store(word.load(SeqCst), SeqCst);
            address.store(range.start(), SeqCst);
            memory.unmap().unwrap();
            address.store(0, SeqCst);
            monitor.unsubscribe(range);
            taken(monitor);
        }
        stop.store(true, SeqCst);
    });
    (reused.into_inner(), unmoved.into_inner())
}

#[test]
fn a_reused_address_is_never_found_unchanged() {
    let options = EbpfOptions { variant: Some(Variant::Tracepoint), ..own() };
    let Some(monitor) = started(&options) else { return };
    // Another thread than the test's, which must not stay on one CPU.
    let raced = std::thread::scope(|scope| scope.spawn(|| race(&monitor)).join());
    let (reused, unmoved) = raced.unwrap();
    println!("{}: reused {reused}, word unmoved {unmoved}", monitor.variant().name());
    assert_eq!(unmoved, 0, "of {reused}");
}
