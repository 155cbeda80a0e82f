//! Discards, and how long they keep a range uncached.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use super::*;
use crate::sys::test_memory::{Memory, madvise, touch};
use crate::sys::threads::{Where, gettid, location, user_ns};
use crate::sys::uffd;

fn is_in_grace(rig: &Rig, range: PageRange) -> bool {
    matches!(rig.subscribe(range), Subscription::Uncacheable(why) if why.starts_with("grace"))
}

#[test]
fn a_range_is_cached_again_within_100_ms_of_a_storm() {
    let _alone = alone();
    let Some(rig) = Rig::new() else { return };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A thread that runs all the time, and one that sleeps.
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                std::hint::spin_loop();
            }
        });
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                std::thread::park_timeout(Duration::from_millis(500));
            }
        });
        // Other tests' threads run beside this, on a machine that may be busy.
        let good = (0..10).any(|_| storm(&rig) == Subscription::Events);
        stop.store(true, SeqCst);
        assert!(good, "not cached 100 ms after any of ten storms");
    });
}

/// Discards and refills, and asks again 100 ms later.
fn storm(rig: &Rig) -> Subscription {
    let (storm, beside) = (Memory::anonymous(4), Memory::anonymous(4));
    for memory in [&storm, &beside] {
        touch(memory.pages(0, 4), 1);
        wait_out_grace(rig, memory.pages(0, 4));
    }
    let mut in_grace = 0;
    for _ in 0..2000 {
        madvise(storm.pages(0, 2), libc::MADV_DONTNEED).unwrap();
        in_grace += u32::from(is_in_grace(rig, storm.pages(1, 1)));
        touch(storm.pages(0, 2), 2);
    }
    assert!(in_grace > 1000, "right after the discard it is in grace: {in_grace} of 2000");
    assert_eq!(rig.subscribe(beside.pages(0, 4)), Subscription::Events, "only what was discarded");
    std::thread::sleep(Duration::from_millis(100));
    rig.subscribe(storm.pages(0, 4))
}

#[cfg(debug_assertions)] // release builds always have it
#[test]
fn without_the_grace_period_it_would_be_cached_at_once() {
    let Some(rig) = Rig::with_options(UffdOptions { grace: false, ..UffdOptions::default() }) else { return };
    let memory = Memory::anonymous(4);
    touch(memory.pages(0, 4), 1);
    rig.subscribe(memory.pages(0, 4));
    for _ in 0..100 {
        madvise(memory.pages(0, 4), libc::MADV_DONTNEED).unwrap();
        assert_eq!(rig.subscribe(memory.pages(0, 4)), Subscription::Events);
    }
}

/// A thread asleep in madvise (here until the event of its own discard is read by another
/// userfaultfd): for all we know it is the one that discards.
#[test]
fn a_thread_asleep_in_madvise_keeps_the_range_uncached() {
    let _alone = alone();
    let Some(rig) = Rig::new() else { return };
    let (memory, other) = (Memory::anonymous(4), Memory::anonymous(4));
    for memory in [&memory, &other] {
        touch(memory.pages(0, 4), 1);
    }
    wait_out_grace(&rig, memory.pages(0, 4));
    let (queue, tid) = (uffd::open().expect("the rig has one"), AtomicU32::new(0));
    uffd::arm(queue.as_raw_fd(), other.pages(0, 4)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            tid.store(gettid(), SeqCst);
            madvise(other.pages(0, 4), libc::MADV_DONTNEED).unwrap();
        });
        while tid.load(SeqCst) == 0 || location(tid.load(SeqCst)) != Where::Call(libc::SYS_madvise) {
            std::thread::yield_now();
        }
        madvise(memory.pages(0, 4), libc::MADV_DONTNEED).unwrap();
        rig.wait_until_even();
        for look in 0..100 {
            assert!(is_in_grace(&rig, memory.pages(0, 4)), "cached at look {look}");
            std::thread::sleep(Duration::from_millis(1));
        }
        while uffd::Buffer::new().read(queue.as_raw_fd()) == 0 {} // lets it go
    });
    assert_eq!(wait_out_grace(&rig, memory.pages(0, 4)), Subscription::Events);
}

/// A thread that runs in one long madvise call: it too may be the one that discards.
#[test]
fn a_thread_that_runs_in_madvise_keeps_the_range_uncached() {
    let _alone = alone();
    let Some(rig) = Rig::new() else { return };
    let memory = Memory::anonymous(4);
    touch(memory.pages(0, 4), 1);
    wait_out_grace(&rig, memory.pages(0, 4));
    let mut looks = (0..10).map(|_| look_while_another_is_in_madvise(&rig, memory.pages(0, 4)));
    // Other tests that map memory queue for the lock which the call holds, and we behind them: then there is
    // nothing to be seen here. The test above always sees.
    if !looks.any(|n| n > 10) {
        println!("skipped: other threads' mmap calls left no look inside the call");
    }
    assert_eq!(wait_out_grace(&rig, memory.pages(0, 4)), Subscription::Events);
}

/// Discards `range` while another thread populates memory. How often it was seen in grace.
fn look_while_another_is_in_madvise(rig: &Rig, range: PageRange) -> u32 {
    const BIG: usize = 4 << 30 >> 12; // 4 GiB of the zero page: 8 MiB of page tables
    let big = Memory::reserved(BIG);
    madvise(big.pages(0, BIG), libc::MADV_NOHUGEPAGE).unwrap();
    let (tid, done) = (AtomicU32::new(0), AtomicBool::new(false));
    let mut looks = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            tid.store(gettid(), SeqCst);
            let _ = madvise(big.pages(0, BIG), libc::MADV_POPULATE_READ);
            done.store(true, SeqCst);
        });
        while tid.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(10));
        let before = user_ns(tid.load(SeqCst));
        madvise(range, libc::MADV_DONTNEED).unwrap();
        rig.wait_until_even(); // or a look would arm the range, and wait for the populating call's lock
        // Until it comes back to user mode, by its clock or by its own word.
        let inside = || user_ns(tid.load(SeqCst)) == before && !done.load(SeqCst);
        while inside() {
            let in_grace = is_in_grace(rig, range);
            assert!(in_grace || !inside(), "cached while the other was in the call, look {looks}");
            looks += u32::from(in_grace);
        }
    });
    looks
}

/// io_uring runs MADVISE in a kernel worker, whose user time never moves: it is seen to be idle.
#[cfg(feature = "io-uring")]
#[test]
fn a_discard_by_io_uring_ends_its_grace_period_too() {
    let _alone = alone();
    let (Some(rig), Ok(mut ring)) = (Rig::new(), io_uring::IoUring::new(2)) else { return };
    let memory = Memory::anonymous(4);
    touch(memory.pages(0, 4), 1);
    wait_out_grace(&rig, memory.pages(0, 4));
    let before = rig.heard.generation();
    let advise = io_uring::opcode::Madvise::new(memory.addr() as *const _, 4096, libc::MADV_DONTNEED);
    // SAFETY: the memory outlives the request, which is waited for; nothing refers to its bytes.
    unsafe { ring.submission().push(&advise.build()).unwrap() };
    ring.submit_and_wait(1).unwrap();
    assert_eq!(ring.completion().next().unwrap().result(), 0);
    assert!(rig.heard.generation() > before, "the worker's discard is an event");
    assert_eq!(wait_out_grace(&rig, memory.pages(0, 4)), Subscription::Events);
}
