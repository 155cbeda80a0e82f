//! Races between changes of memory and acquisitions, decided by real transfers: WRITE_FIXED through
//! the registration against what the CPU sees.
#![cfg(all(feature = "uffd", feature = "io-uring"))]

mod support;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pindown::monitor::{Uffd, UffdOptions};
use pindown::provider::io_uring::{Mover, UringProvider};
use pindown::{Access, Builder, Monitor, MonitorChoice, MonitorError, Notifier, PAGE_SIZE};
use support::{Map, in_own_process};

type Ring = pindown::Cache<UringProvider>;

/// A cache on a ring of its own, and the mover of that ring. `None` where the kernel refuses.
fn rig(options: UffdOptions) -> Option<(Mover, Ring)> {
    let probe = Uffd::new();
    if let Err(e @ MonitorError::Unavailable { .. }) = probe.start(Notifier::detached()) {
        println!("skipped: {e}");
        return None;
    }
    drop(probe);
    let mover = match Mover::new(1, 64 * PAGE_SIZE) {
        Ok(mover) => mover,
        Err(e) => {
            println!("skipped: io_uring: {e}");
            return None;
        }
    };
    let provider = UringProvider::new(mover.ring()).unwrap();
    let monitor = MonitorChoice::Custom(Arc::new(Uffd::with_options(options)));
    Some((mover, Builder::new(provider).monitor(monitor).build().unwrap()))
}

fn acquire(cache: &Ring, map: &Map, pages: usize) -> pindown::Registration<UringProvider> {
    // SAFETY: only sent from; the map outlives the registration.
    unsafe { cache.acquire(map.ptr(), pages * PAGE_SIZE, Access::READ) }.unwrap()
}

fn discard(map: &Map, pages: usize) {
    // SAFETY: the test's own memory, filled again before it is read.
    assert_eq!(unsafe { libc::madvise(map.ptr().cast(), pages * PAGE_SIZE, libc::MADV_DONTNEED) }, 0);
}

/// What the CPU sees in the first page differs from what is sent of it.
fn is_stale(mover: &mut Mover, cache: &Ring, map: &Map) -> bool {
    let registration = acquire(cache, map, 1);
    let sent = mover.write_fixed(registration.key(), map.ptr(), PAGE_SIZE).unwrap();
    sent != &map.bytes()[..PAGE_SIZE]
}

/// Rounds of discard, refill, acquire and transfer, beside a thread that acquires all the time. How
/// many transfers were stale. Ends early at the first if `until_stale`.
fn discard_race(mover: &mut Mover, cache: &Ring, map: &Map, rounds: u32, until_stale: bool) -> u32 {
    let stop = AtomicBool::new(false);
    let mut stale = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                drop(acquire(cache, map, 8));
                std::thread::yield_now();
            }
        });
        for round in 0..rounds {
            discard(map, 2);
            fill(map, 2, round);
            stale += u32::from(is_stale(mover, cache, map));
            if until_stale && stale > 0 {
                break;
            }
        }
        stop.store(true, SeqCst);
    });
    stale
}

fn fill(map: &Map, pages: usize, round: u32) {
    for word in 0..pages * PAGE_SIZE / 4 {
        // SAFETY: inside the test's own map.
        unsafe { map.ptr().cast::<u32>().add(word).write_volatile(round.wrapping_add(word as u32)) };
    }
}

fn rounds(default: u32) -> u32 {
    std::env::var("PINDOWN_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

#[test]
fn a_discarded_range_is_never_served_from_its_old_pages() {
    in_own_process("a_discarded_range_is_never_served_from_its_old_pages", || {
        let Some((mut mover, cache)) = rig(UffdOptions::default()) else { return };
        let map = Map::filled(8, 1);
        let (rounds, start) = (rounds(100_000), Instant::now());
        let stale = discard_race(&mut mover, &cache, &map, rounds, false);
        println!("{rounds} rounds in {:?}: {stale} stale; {:?}", start.elapsed(), cache.stats());
        assert_eq!(stale, 0);
        // And caching is not lost for good. (Ten tries: the machine may be busy.)
        let cached_again = (0..10).any(|round| {
            discard_race(&mut mover, &cache, &map, 1000, false);
            std::thread::sleep(Duration::from_millis(100));
            fill(&map, 2, round);
            let registration = acquire(&cache, &map, 1);
            registration.is_cached() && acquire(&cache, &map, 1).key() == registration.key()
        });
        assert!(cached_again, "not cached 100 ms after a storm");
    });
}

/// What the grace period is for: the same race without it moves stale bytes.
#[cfg(debug_assertions)] // release builds always have it
#[test]
fn without_the_grace_period_stale_bytes_are_moved() {
    in_own_process("without_the_grace_period_stale_bytes_are_moved", || {
        let mut options = UffdOptions::default();
        options.grace = false;
        let Some((mut mover, cache)) = rig(options) else { return };
        let map = Map::filled(8, 1);
        let start = Instant::now();
        let stale = (0..1000)
            .take_while(|_| start.elapsed() < Duration::from_secs(150))
            .any(|_| discard_race(&mut mover, &cache, &map, 1000, true) > 0);
        println!("stale {stale} after {:?}", start.elapsed());
        assert!(stale, "the hazard was not seen: the test beside this one proves nothing");
    });
}

/// What a thread did: transfers, stale ones, registrations that were found cached.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    moved: u64,
    stale: u64,
}

/// Maps, fills, sends and unmaps over and over: several such threads get each other's addresses.
fn map_send_unmap(cache: &Ring, mover: &Mutex<Mover>, seed: u8, stop: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    while !stop.load(SeqCst) {
        let map = Map::filled(4, seed.wrapping_mul(64).wrapping_add((tally.moved % 64) as u8));
        let mut mover = mover.lock().unwrap();
        tally.stale += u64::from(is_stale(&mut mover, cache, &map));
        tally.moved += 1;
    }
    tally
}

fn reuse_race(settle: bool, time: Duration, until_stale: bool) -> Option<Tally> {
    let mut options = UffdOptions::default();
    options.settle = settle;
    let (mover, cache) = rig(options)?;
    let (mover, stop) = (Mutex::new(mover), AtomicBool::new(false));
    let mut sum = Tally::default();
    let start = Instant::now();
    while start.elapsed() < time && !(until_stale && sum.stale > 0) {
        std::thread::scope(|scope| {
            let run = |seed| {
                scope.spawn({
                    let (cache, mover, stop) = (&cache, &mover, &stop);
                    move || map_send_unmap(cache, mover, seed, stop)
                })
            };
            let threads: Vec<_> = (0..3).map(run).collect();
            std::thread::sleep(Duration::from_millis(500));
            stop.store(true, SeqCst);
            for tally in threads.into_iter().map(|t| t.join().unwrap()) {
                sum = Tally { moved: sum.moved + tally.moved, stale: sum.stale + tally.stale };
            }
        });
        stop.store(false, SeqCst);
        println!("round: {sum:?} events {:?}", cache.stats().events);
    }
    println!("settle {settle}: {sum:?} in {:?}; {:?}", start.elapsed(), cache.stats());
    Some(sum)
}

/// While one thread is in munmap, the kernel gives the address to another's mmap, and the event is
/// yet to be read: the other must not find the registration of the old memory.
#[test]
fn an_address_taken_over_from_another_thread_is_fresh() {
    in_own_process("an_address_taken_over_from_another_thread_is_fresh", || {
        if let Some(tally) = reuse_race(true, Duration::from_secs(3), false) {
            assert_eq!(tally.stale, 0, "{tally:?}");
            assert!(tally.moved > 100);
        }
    });
}

#[test]
fn without_settling_an_address_taken_over_is_stale() {
    in_own_process("without_settling_an_address_taken_over_is_stale", || {
        if let Some(tally) = reuse_race(false, Duration::from_secs(30), true) {
            assert!(tally.stale > 0, "the hazard was not seen: the test beside this one proves nothing");
        }
    });
}
