//! malloc and free in storms while the cache is busy: nobody hangs, and the bytes are right. With a preloaded
//! allocator it is that one's purging and unmapping. `PINDOWN_STORM_SECONDS` (2) says for how long,
//! `PINDOWN_STORM_ALLOCATOR` which library must be loaded.
#![cfg(all(feature = "io-uring", feature = "uffd"))]

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pindown::PAGE_SIZE;
use support::in_own_process;
use support::moving::{MOST_BYTES, Moving};

const BUSY: usize = 2;
const STORMS: usize = 3;

/// How far each thread has come; the last starts short-lived threads.
static STEPS: [AtomicU64; BUSY + STORMS + 1] = [const { AtomicU64::new(0) }; BUSY + STORMS + 1];
static STOP: AtomicBool = AtomicBool::new(false);

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
    /// From a few bytes to 4 MiB, as often small as large.
    fn size(&mut self) -> usize {
        let bits = 4 + self.below(18);
        1 + self.below(1 << bits)
    }
}

fn goes_on(thread: usize) -> bool {
    STEPS[thread].fetch_add(1, Ordering::Relaxed);
    !STOP.load(Ordering::Relaxed)
}

/// Sends from blocks of the heap that are allocated, resized and freed between transfers.
fn transfer(thread: usize, mut moving: Moving) {
    let mut random = Random(thread as u64);
    let mut blocks: Vec<Vec<u8>> = (0..16).map(|_| Vec::new()).collect();
    while goes_on(thread) {
        let block = &mut blocks[random.below(16)];
        match random.below(4) {
            0 => *block = vec![0; 1 + random.below(MOST_BYTES)],
            1 => block.resize(1 + random.below(MOST_BYTES), 0),
            2 => block.shrink_to_fit(),
            _ => block.resize(block.len().max(64), 0),
        }
        block.fill(random.below(256) as u8);
        if !block.is_empty() {
            assert_eq!(moving.send(block.as_ptr(), block.len()), *block, "stale bytes");
        }
    }
    drop(blocks);
    moving.close();
}

fn storm(thread: usize) {
    let mut random = Random(thread as u64);
    let mut blocks: Vec<Vec<u8>> = (0..64).map(|_| Vec::new()).collect();
    while goes_on(thread) {
        let block = &mut blocks[random.below(64)];
        match random.below(5) {
            0 => *block = Vec::new(),
            1 => block.resize(random.size(), 1),
            2 => block.shrink_to_fit(),
            _ => *block = Vec::with_capacity(random.size()),
        }
        // Written a page at a time, so that there is something to take away.
        let spare = block.spare_capacity_mut();
        spare.iter_mut().step_by(PAGE_SIZE).for_each(|byte| _ = byte.write(2));
        if random.below(2000) == 0 {
            trim();
        }
    }
}

/// glibc gives back what it can with MADV_DONTNEED, in all arenas.
fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number; gives unused memory back.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Arenas and thread caches that come and go, with memory freed by another thread than allocated it.
fn come_and_go(thread: usize) {
    let mut left = Vec::new();
    while goes_on(thread) {
        let seed = STEPS[thread].load(Ordering::Relaxed);
        let body = move || (0..8u64).map(|n| vec![n as u8; Random(seed + n).size()]).collect::<Vec<_>>();
        left.push(std::thread::spawn(body).join().expect("it allocates"));
        if left.len() > 8 {
            left.clear();
        }
    }
}

/// Every thread must move within 20 seconds in which this one ran.
fn watch() {
    let seconds = std::env::var("PINDOWN_STORM_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(2);
    let (mut seen, mut still) = ([0; STEPS.len()], [0; STEPS.len()]);
    for _ in 0..seconds * 10 {
        std::thread::sleep(Duration::from_millis(100));
        for (thread, steps) in STEPS.iter().enumerate() {
            let now = steps.load(Ordering::Relaxed);
            still[thread] = if now == seen[thread] { still[thread] + 1 } else { 0 };
            seen[thread] = now;
            if still[thread] > 200 {
                eprintln!("thread {thread} of {} hangs after {now} steps: {seen:?}", STEPS.len());
                std::process::abort();
            }
        }
    }
    STOP.store(true, Ordering::Relaxed);
    println!("{seconds} s: steps of {BUSY} transferring, {STORMS} storming and a spawning thread: {seen:?}");
}

fn is_loaded(library: &str) -> bool {
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains(library))
}

#[test]
fn malloc_storms_while_the_cache_is_busy() {
    in_own_process("malloc_storms_while_the_cache_is_busy", || {
        if let Ok(library) = std::env::var("PINDOWN_STORM_ALLOCATOR") {
            assert!(is_loaded(&library), "{library} is not preloaded");
        }
        let Some(busy) = (0..BUSY).map(|_| Moving::new()).collect::<Option<Vec<_>>>() else { return };
        std::thread::scope(|scope| {
            for (thread, moving) in busy.into_iter().enumerate() {
                scope.spawn(move || transfer(thread, moving));
            }
            (BUSY..BUSY + STORMS).for_each(|thread| _ = scope.spawn(move || storm(thread)));
            scope.spawn(|| come_and_go(BUSY + STORMS));
            watch();
        });
    });
}
