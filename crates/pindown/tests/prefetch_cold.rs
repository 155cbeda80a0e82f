//! Cold memory and its first transfer, with prefetch and without, in one run: the faults are taken before it.
//! Says the times: `cargo test -p pindown --all-features --test prefetch_cold -- --nocapture --test-threads 1`.
#![cfg(any(feature = "io-uring", feature = "verbs"))]

mod support;
#[cfg(feature = "verbs")]
mod verbs_common;

use std::time::{Duration, Instant};

use pindown::queue::{Done, Queue};
use pindown::{Access, Builder, Cache, MonitorChoice, PAGE_SIZE, PageRange, Provider, Registration};
use support::{Map, is_memlock_at_least};

/// 32 MiB, or what an ordinary user may pin.
fn len_bytes() -> usize {
    if is_memlock_at_least(256 << 20) { 32 << 20 } else { 1 << 20 }
}

/// How long the parts of one round took.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    prefetch: Duration,
    register: Duration,
    transfer: Duration,
}

/// A device to move `bytes` into a registered range of that length.
trait Device {
    type Provider: Provider;
    const INTO: Access;
    const ROUNDS: usize;
    /// Page-aligned: soft-RoCE (Linux 7.3) ignores the offset in an on-demand page.
    fn ready_source(&mut self, _bytes: &[u8]) {}
    fn cache(&self) -> &Cache<Self::Provider>;
    fn fill(&mut self, held: &Registration<Self::Provider>, into: &Map, bytes: &[u8]);
    /// Registering takes the faults of what is cold, so that the transfer does not.
    fn pins(&self) -> bool;
}

fn resident_pages(range: PageRange) -> usize {
    let mut pages = vec![0u8; range.pages() as usize];
    let at = std::ptr::without_provenance_mut(range.start());
    // SAFETY: the vector has a byte a page.
    assert_eq!(unsafe { libc::mincore(at, range.len_bytes(), pages.as_mut_ptr()) }, 0);
    pages.iter().filter(|p| **p & 1 == 1).count()
}

fn prefetched<D: Device>(device: &D, into: &Map) -> Duration {
    let queue = Queue::new(device.cache()).unwrap();
    let start = Instant::now();
    // SAFETY: nothing refers to the mapping.
    unsafe { queue.prefetch_then(into.ptr(), into.len(), D::INTO, 1, |_| {}) }.unwrap();
    let completion = queue.wait(Duration::from_secs(120)).unwrap();
    let took = start.elapsed();
    let result = completion.result.map_err(|e| e.to_string());
    let Ok(Done::Prefetched(ready, Some(_))) = result else { panic!("not registered: {:?}", result.err()) };
    assert!(ready.stop.is_none() && ready.ready_bytes == into.len(), "{ready:?}");
    if let Some(Err(error)) = ready.device {
        println!("the device was not asked: {error}");
    }
    took
}

/// One transfer into new memory.
fn round<D: Device>(device: &mut D, prefetch: bool, bytes: &[u8]) -> Times {
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let into = Map::new(None, bytes.len() / PAGE_SIZE, rw, libc::MAP_PRIVATE, -1).unwrap();
    let mut times = Times::default();
    if prefetch {
        times.prefetch = prefetched(device, &into);
    }
    let pages = into.range().pages() as usize;
    assert_eq!(resident_pages(into.range()), if prefetch { pages } else { 0 });
    let start = Instant::now();
    // SAFETY: nothing refers to the mapping.
    let held = unsafe { device.cache().acquire(into.ptr(), into.len(), D::INTO) }.unwrap();
    times.register = start.elapsed();
    let ready = if prefetch || device.pins() { pages } else { 0 };
    assert_eq!(resident_pages(into.range()), ready, "what the transfer finds");
    let start = Instant::now();
    device.fill(&held, &into, bytes);
    times.transfer = start.elapsed();
    assert!(into.bytes() == bytes, "other bytes arrived");
    drop(held);
    device.cache().invalidate(into.range());
    times
}

fn compare<D: Device>(name: &str, mut device: D) {
    let source = Map::filled(len_bytes() / PAGE_SIZE, 0);
    let bytes: Vec<u8> = (0..source.len()).map(|i| (i * 31 % 251) as u8).collect();
    // SAFETY: the mapping is as long, and from here on only read.
    let bytes = unsafe {
        source.ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        std::slice::from_raw_parts(source.ptr(), source.len())
    };
    device.ready_source(bytes);
    let (mut cold, mut ready) = (Vec::new(), Vec::new());
    for _ in 0..D::ROUNDS {
        cold.push(round(&mut device, false, bytes));
        ready.push(round(&mut device, true, bytes));
    }
    let (cold, ready) = (median(cold), median(ready));
    println!(
        "{name}, {} MiB: cold: register {:?}, transfer {:?}; prefetched in {:?}: register {:?}, transfer {:?}",
        bytes.len() >> 20,
        cold.register,
        cold.transfer,
        ready.prefetch,
        ready.register,
        ready.transfer
    );
}

fn median(mut rounds: Vec<Times>) -> Times {
    rounds.sort_by_key(|t| t.register + t.transfer);
    rounds[rounds.len() / 2]
}

#[cfg(feature = "io-uring")]
mod ring {
    use super::*;
    use pindown::provider::io_uring::{Mover, UringProvider};

    struct Ring {
        mover: Mover,
        cache: Cache<UringProvider>,
    }

    impl Device for Ring {
        type Provider = UringProvider;
        const INTO: Access = Access::READ_WRITE;
        const ROUNDS: usize = 3;
        fn cache(&self) -> &Cache<UringProvider> {
            &self.cache
        }
        fn fill(&mut self, held: &Registration<UringProvider>, into: &Map, bytes: &[u8]) {
            // SAFETY: nothing refers to the mapping, and the registration is held.
            unsafe { self.mover.read_fixed(held.key(), into.ptr(), bytes) }.unwrap();
        }
        fn pins(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_ring_finds_cold_memory_ready() {
        let mover = match Mover::new(1, len_bytes()) {
            Ok(mover) => mover,
            Err(error) => return println!("skipped: no io_uring here: {error}"),
        };
        let provider = UringProvider::new(mover.ring()).unwrap();
        let cache = Builder::new(provider).monitor(MonitorChoice::Manual).build().unwrap();
        compare("io_uring, READ_FIXED", Ring { mover, cache });
    }
}

#[cfg(feature = "verbs")]
mod verbs {
    use super::*;
    use pindown::provider::verbs::rc::{Endpoint, EndpointOptions, Remote, Request, Segment};
    use pindown::provider::verbs::{Options, Paging, Verbs};

    struct Wire {
        cache: Cache<Verbs>,
        source: Option<Registration<Verbs>>,
        near: Endpoint,
        _far: Endpoint,
        pins: bool,
    }

    impl Wire {
        fn new(device: &str, paging: Paging) -> Self {
            let cache = verbs_common::cache(device, Options::default().paging(paging));
            let (near, far) = Endpoint::pair(cache.provider(), &EndpointOptions::default()).unwrap();
            Self { cache, source: None, near, _far: far, pins: paging == Paging::Pinned }
        }
    }

    impl Device for Wire {
        type Provider = Verbs;
        const INTO: Access = Access::REMOTE_WRITE;
        const ROUNDS: usize = 1; // half a minute each under emulation
        fn cache(&self) -> &Cache<Verbs> {
            &self.cache
        }
        /// Its faults are not what is measured.
        fn ready_source(&mut self, bytes: &[u8]) {
            // Soft-RoCE prefetches only where there is the right to write (EINVAL otherwise).
            // SAFETY: the device is only told to read `bytes`, which nobody writes.
            let source =
                unsafe { self.cache.acquire(bytes.as_ptr(), bytes.len(), Access::READ_WRITE) }.unwrap();
            if !self.pins {
                self.cache.provider().prefetch(source.key(), source.range(), Access::READ).unwrap();
            }
            self.source = Some(source);
        }
        /// RDMA WRITE from `bytes`.
        fn fill(&mut self, held: &Registration<Verbs>, into: &Map, bytes: &[u8]) {
            let source = self.source.clone().expect("readied");
            let segment = Segment {
                addr: bytes.as_ptr().addr(),
                len_bytes: bytes.len() as u32,
                lkey: source.key().lkey,
            };
            let remote = Remote { addr: into.ptr().addr() as u64, rkey: held.key().rkey };
            let (hold, limit) = ((source, held.clone()), Duration::from_secs(300));
            // SAFETY: nothing refers to the mapping; both registrations are held until the completion.
            unsafe { self.near.transfer(Request::Write(remote), segment, hold, limit) }.unwrap();
        }
        fn pins(&self) -> bool {
            self.pins
        }
    }

    #[test]
    fn a_pinned_region_of_cold_memory_is_ready() {
        let device = device_or_skip!();
        compare("verbs, pinned, RDMA WRITE", Wire::new(&device, Paging::Pinned));
    }

    #[test]
    fn an_on_demand_region_of_cold_memory_is_ready() {
        let device = device_or_skip!();
        if !verbs_common::has_on_demand(&device) {
            return println!("skipped: {device} has no on-demand paging");
        }
        compare("verbs, on-demand, RDMA WRITE", Wire::new(&device, Paging::OnDemand));
    }
}
