//! What the queue promises, measured: `cargo bench -p pindown --bench queue [overlap] [large]`.
//!
//! - `overlap`: 64 submissions to a device that takes 1 ms each, against the same in turn; and how long
//!   another thread's hits take meanwhile.
//! - `large`: 4 GiB of populated memory on io_uring in parallel pieces, against the same pieces in turn on
//!   one ring. Median of nine, taken alternately. Bytes by PINDOWN_BENCH_BYTES;
//!   half of what is free where that is less.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pindown::provider::sim::{Sim, SimConfig};
use pindown::queue::{Done, Queue, Submitted};
use pindown::{Access, Builder, Cache, MonitorChoice, PAGE_SIZE};

fn main() {
    let wanted: Vec<_> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    if wants("overlap") {
        overlap();
    }
    if wants("large") {
        large::run();
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn at(page: usize) -> *const u8 {
    std::ptr::without_provenance(0x2000_0000 + page * PAGE_SIZE)
}

fn overlap() {
    let mut config = SimConfig::default();
    config.register_latency = Duration::from_millis(1);
    let cache = Builder::new(Sim::with(config))
        .monitor(MonitorChoice::Manual)
        .sweep(false)
        .widen(false)
        .build()
        .unwrap();
    let queue = Queue::new(&cache).unwrap();
    let (mut serial, mut queued) = (Vec::new(), Vec::new());
    for round in 0..5 {
        serial.push(in_turn(&cache, round * 1000));
        queued.push(submitted(&queue, round * 1000 + 500));
    }
    let (serial, queued) = (median(serial), median(queued));
    let ratio = queued.as_secs_f64() / serial.as_secs_f64();
    println!("overlap: 64 in turn {serial:?}, 64 submitted {queued:?}, ratio {ratio:.2} (bar 0.6)");
    let alone = hits(&cache, |_| std::thread::sleep(Duration::from_millis(500)));
    let beside = hits(&cache, |cache| {
        let queue = Queue::new(cache).unwrap();
        (0..15).for_each(|round| {
            submitted(&queue, 100_000 + round * 100);
        });
    });
    println!("hits p99.99: alone {} ns, beside the submissions {} ns", alone, beside);
}

fn in_turn(cache: &Cache<Sim>, first: usize) -> Duration {
    let start = Instant::now();
    for page in first..first + 64 {
        // SAFETY: the simulated device touches no memory.
        drop(unsafe { cache.acquire(at(page), PAGE_SIZE, Access::READ) }.unwrap());
    }
    start.elapsed()
}

fn submitted(queue: &Queue<Sim>, first: usize) -> Duration {
    let start = Instant::now();
    for page in first..first + 64 {
        // SAFETY: as above.
        let submitted = unsafe { queue.submit(at(page), PAGE_SIZE, Access::READ, page as u64) }.unwrap();
        assert!(matches!(submitted, Submitted::Pending(_)));
    }
    for _ in 0..64 {
        queue.wait(Duration::from_secs(10)).unwrap().result.unwrap();
    }
    start.elapsed()
}

/// The 99.99th percentile of hits' times, in ns with the clock's own, while `other` runs.
fn hits(cache: &Cache<Sim>, other: impl FnOnce(&Cache<Sim>)) -> u64 {
    let stop = AtomicBool::new(false);
    // SAFETY: as above.
    drop(unsafe { cache.acquire(at(1 << 20), PAGE_SIZE, Access::READ) }.unwrap());
    std::thread::scope(|scope| {
        let hitter = scope.spawn(|| {
            let mut times = Vec::with_capacity(1 << 22);
            while !stop.load(Ordering::Relaxed) && times.len() < times.capacity() {
                let start = Instant::now();
                let hit = cache.lookup(at(1 << 20), PAGE_SIZE, Access::READ);
                times.push(start.elapsed().as_nanos() as u64);
                assert!(hit.is_some());
            }
            times.sort_unstable();
            times[times.len() - 1 - times.len() / 10_000]
        });
        other(cache);
        stop.store(true, Ordering::Relaxed);
        hitter.join().unwrap()
    })
}

#[cfg(not(feature = "io-uring"))]
mod large {
    pub(super) fn run() {
        println!("large: skipped: built without feature io-uring");
    }
}

#[cfg(feature = "io-uring")]
mod large {
    use super::*;
    use io_uring::IoUring;
    use pindown::provider::io_uring::UringProvider;
    use pindown::{PageRange, Provider};

    const PIECE: usize = 64 << 20;

    /// Populated memory; with small pages or as the machine likes.
    struct Memory {
        addr: *mut u8,
        len: usize,
    }

    impl Memory {
        fn new(len: usize, small_pages: bool) -> Self {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a new mapping, and advice on it.
            let addr = unsafe {
                let addr = libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0);
                assert_ne!(addr, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
                let advice = if small_pages { libc::MADV_NOHUGEPAGE } else { libc::MADV_HUGEPAGE };
                libc::madvise(addr, len, advice);
                addr.cast::<u8>()
            };
            let range = PageRange::covering(addr.expose_provenance(), len).unwrap();
            let ready = pindown::queue::prefetch(range, Access::READ_WRITE);
            assert!(ready.stop.is_none(), "{ready:?}");
            Self { addr, len }
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: mapped by `new`.
            unsafe { libc::munmap(self.addr.cast(), self.len) };
        }
    }

    pub(super) fn run() {
        let asked = std::env::var("PINDOWN_BENCH_BYTES").ok().and_then(|b| b.parse().ok());
        let bytes =
            asked.unwrap_or_else(|| available_bytes().map_or(4 << 30, |most| (most / 2).min(4 << 30)));
        for small_pages in [true, false] {
            let memory = Memory::new(bytes & !(PIECE - 1), small_pages);
            let (mut turn, mut parallel) = (Vec::new(), Vec::new());
            for _ in 0..9 {
                turn.push(in_turn(&memory));
                parallel.push(in_pieces(&memory));
            }
            let (turn, parallel) = (median(turn), median(parallel));
            let pages = if small_pages { "small" } else { "huge" };
            let gain = turn.as_secs_f64() / parallel.as_secs_f64();
            let mib = memory.len >> 20;
            println!(
                "large: {mib} MiB of {pages} pages: in turn {turn:?}, pieces {parallel:?}: {gain:.2}x (bar 1.6)"
            );
        }
    }

    /// What the kernel thinks can be had (`MemAvailable`, proc_meminfo(5)).
    fn available_bytes() -> Option<usize> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
        line.split_whitespace().next()?.parse::<usize>().ok().map(|kib| kib << 10)
    }

    fn in_turn(memory: &Memory) -> Duration {
        let ring = IoUring::new(8).unwrap();
        let provider = UringProvider::new(&ring).unwrap();
        let start = Instant::now();
        let mut mrs = Vec::new();
        for offset in (0..memory.len).step_by(PIECE) {
            let len = PIECE.min(memory.len - offset);
            let range = PageRange::covering(memory.addr.addr() + offset, len).unwrap();
            // SAFETY: no transfer is made.
            let (mut made, error) = unsafe { provider.register_batch(&[range], Access::READ_WRITE) };
            assert!(error.is_none(), "{error:?} (ulimit -l)");
            mrs.append(&mut made);
        }
        let time = start.elapsed();
        mrs.into_iter().for_each(|mr| provider.deregister(mr).unwrap());
        time
    }

    fn in_pieces(memory: &Memory) -> Duration {
        let ring = IoUring::new(8).unwrap();
        let provider = UringProvider::new(&ring).unwrap();
        let cache =
            Builder::new(provider).monitor(MonitorChoice::Manual).max_bytes(u64::MAX).build().unwrap();
        let queue = Queue::new(&cache).unwrap();
        let start = Instant::now();
        // SAFETY: no transfer is made.
        unsafe { queue.submit_large(memory.addr, memory.len, Access::READ_WRITE, 1, |_| {}) }.unwrap();
        let completion = queue.wait(Duration::from_secs(60)).unwrap();
        let time = start.elapsed();
        let Ok(Done::Segments(segments)) = completion.result else { panic!("{completion:?}") };
        assert_eq!(segments.len_bytes(), memory.len);
        drop((segments, queue));
        cache.close(Duration::from_secs(60)).unwrap();
        time
    }
}
