//! `hit_loop N`: N hits on one registration, get and put, for counting instructions:
//! the difference between two runs under `valgrind --tool=callgrind` is the hit path alone.
//!
//! One thread is its own fence, so the hazard slots are used here also where `membarrier(2)` is not
//! available (valgrind).

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use pindown::core::sim::Noop;
use pindown::core::{Cache, Host, Mapping, Reservation};
use pindown::monitor::Manual;
use pindown::{Access, Config, LinuxHost, PageRange};

#[derive(Debug)]
struct OneThread(LinuxHost);

impl Host for OneThread {
    fn reserve(&self, bytes: usize) -> Option<Reservation> {
        self.0.reserve(bytes)
    }
    fn reserve_kept(&self, bytes: usize) -> Option<Reservation> {
        self.0.reserve_kept(bytes)
    }
    unsafe fn release(&self, reservation: Reservation) {
        // SAFETY: passed on.
        unsafe { self.0.release(reservation) }
    }
    fn has_asymmetric_fence(&self) -> bool {
        true
    }
    fn asymmetric_fence(&self) {}
    fn mapping(&self, range: PageRange) -> Option<Mapping> {
        self.0.mapping(range)
    }
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
}

/// The loop as an application has it: the address comes from somewhere, the key goes somewhere.
#[inline(never)]
fn run(cache: &Cache<Noop>, at: *const u8, hits: u64) -> u64 {
    let (mut found, mut keys) = (0, 0u32);
    for _ in 0..hits {
        if let Some(registration) = cache.lookup(black_box(at), 4096, Access::READ) {
            keys ^= registration.key();
            found += 1;
        }
    }
    black_box(keys);
    found
}

fn main() {
    let hits: u64 = std::env::args().nth(1).map_or(1_000_000, |n| n.parse().expect("a number of hits"));
    let host = Arc::new(OneThread(LinuxHost::new()));
    let cache = Cache::new(Noop::default(), Arc::new(Manual::new()), host, Config::default()).expect("valid");
    let at: *const u8 = std::ptr::without_provenance(0x1234_5000);
    // SAFETY: the simulated device touches no memory.
    drop(unsafe { cache.acquire(at, 4096, Access::READ) }.expect("nothing fails"));
    let started = Instant::now();
    let found = run(&cache, at, hits);
    let elapsed = started.elapsed();
    assert_eq!(found, hits);
    println!("{hits} hits, {:.2} ns each", elapsed.as_nanos() as f64 / hits.max(1) as f64);
}
