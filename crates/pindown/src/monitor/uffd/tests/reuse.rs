//! One thread gets the address that another is still unmapping.
//!
//! Measured with a bare userfaultfd on 6.18: in 40 of 100 cases where a second thread's mmap was
//! given the address of a mapping whose munmap had not returned, the event had not been read when
//! that mmap returned: a lookup by the generation alone would have found the old registration.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::*;

const LEN: usize = 64 << 10;

fn map() -> usize {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a mapping at an address of the kernel's choice, touched once.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), LEN, prot, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        at.cast::<u8>().write_volatile(1);
        at as usize
    }
}

fn unmap(at: usize) {
    // SAFETY: mapped by `map` and not used any more.
    unsafe { libc::munmap(at as *mut libc::c_void, LEN) };
}

/// How often the second thread got the address, and how often the generation was then as it was
/// when the first had "registered" it.
fn race(rig: &Rig, settle: bool) -> (u64, u64) {
    let (address, generation) = (AtomicUsize::new(0), AtomicU64::new(0));
    let (reused, unmoved, busy) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (mut rounds, others) = (0u64, AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                let at = map();
                let (seen, then) = (address.load(SeqCst), generation.load(SeqCst));
                // The same round of the other thread: it cannot have got the address again.
                if seen == at && address.load(SeqCst) == at {
                    let settled = !settle || rig.monitor.settle();
                    let now = rig.heard.generation();
                    reused.fetch_add(1, SeqCst);
                    busy.fetch_add(u64::from(!settled), SeqCst);
                    unmoved.fetch_add(u64::from(settled && now == then), SeqCst);
                }
                unmap(at);
                others.fetch_add(1, SeqCst);
            }
        });
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) {
            let at = map();
            // What is not covered (another test's discard put it in grace) is not registered either.
            let range = PageRange::covering(at, LEN).unwrap();
            let covered = rig.monitor.subscribe(range, Access::READ_WRITE).ok() == Some(Subscription::Events);
            let now = rig.heard.generation();
            if covered && now.is_multiple_of(2) {
                generation.store(now, SeqCst);
                address.store(at, SeqCst);
            }
            unmap(at);
            address.store(0, SeqCst);
            rounds += 1;
        }
        stop.store(true, SeqCst);
    });
    let (reused, unmoved) = (reused.into_inner(), unmoved.into_inner());
    println!(
        "settle {settle}: reused {reused}, generation unmoved {unmoved}, busy {}; rounds {rounds} and {}",
        busy.into_inner(),
        others.into_inner()
    );
    (reused, unmoved)
}

#[test]
fn a_reused_address_is_never_found_unchanged() {
    let _alone = alone();
    let Some(rig) = Rig::new() else { return };
    let (reused, unmoved) = race(&rig, true);
    assert_eq!(unmoved, 0, "of {reused}");
    let (reused, unmoved) = race(&rig, false);
    if reused > 1000 {
        assert!(unmoved > 0, "without settling the race is not to be seen: this test proves nothing");
    }
}
