//! One thread gets the address that another is still unmapping.
//!
//! munmap(2) lets others map at its addresses before it returns, and the tracepoint variant reports it
//! when it returns. Until new mappings were reported too, a second thread could be given the address,
//! and find what the first had registered there.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use super::*;

const PAGES: usize = 16;

/// How often the second thread got the address, and how often the word was then as it was when the
/// first had registered it.
fn race(monitor: &EbpfMonitor) -> (u64, u64) {
    let word = monitor.generation().unwrap();
    let (address, generation) = (AtomicUsize::new(0), AtomicU64::new(0));
    let (reused, unmoved) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
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
    let Some(monitor) = started(&own()) else { return };
    let (reused, unmoved) = race(&monitor);
    println!("{}: reused {reused}, word unmoved {unmoved}", monitor.variant().name());
    assert_eq!(unmoved, 0, "of {reused}");
}
