//! Idle registrations go by themselves, and those whose memory is gone are found.

use std::time::{Duration, Instant};

use pindown::provider::sim::Sim;
use pindown::{Access, Builder, Cache, EventKind, MonitorChoice};

/// The machine may be short of memory while this runs: that is another test's concern.
fn builder() -> Builder<Sim> {
    Builder::new(Sim::new()).monitor(MonitorChoice::Manual).relieve_pressure(false)
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn acquire(cache: &Cache<Sim>, memory: &[u8]) -> pindown::Registration<Sim> {
    // SAFETY: the simulated device moves nothing.
    unsafe { cache.acquire(memory.as_ptr(), memory.len(), Access::READ) }.expect("registers")
}

#[test]
fn idle_for_the_time_set_means_nothing_is_registered_without_a_further_call() {
    let builder = builder().widen(false);
    let cache = builder.idle(Duration::from_millis(200)).build().expect("builds");
    let memory = vec![0u8; 64 << 12];
    for part in memory.chunks(1 << 12) {
        drop(acquire(&cache, part));
    }
    assert!(cache.stats().regions_registered >= 60);
    wait_until("all expired", || cache.stats().bytes_registered == 0);
    assert_eq!(cache.stats().regions_live, 0);
}

#[test]
fn what_is_used_or_held_does_not_expire() {
    let builder = builder().widen(false);
    let cache = builder.idle(Duration::from_millis(400)).build().expect("builds");
    let (used, held, idle) = (vec![0u8; 1 << 14], vec![0u8; 1 << 14], vec![0u8; 1 << 14]);
    let hold = acquire(&cache, &held);
    drop(acquire(&cache, &used));
    drop(acquire(&cache, &idle));
    wait_until("the idle one expired", || {
        // SAFETY: the simulated device moves nothing.
        drop(unsafe { cache.acquire(used.as_ptr(), used.len(), Access::READ) });
        cache.stats().regions_live == 2
    });
    assert_eq!(cache.stats().registrations, 3, "what is used stayed");
    assert!(!hold.is_stale());
    drop(hold);
    wait_until("the rest expired", || cache.stats().bytes_registered == 0);
}

#[test]
fn memory_that_is_gone_is_found_by_a_pass() {
    let cache = builder().sweep(false).build().expect("builds");
    let memory = vec![0u8; 1 << 14];
    drop(acquire(&cache, &memory));
    // Below vm.mmap_min_addr, where nothing ever is; the simulated device registers it all the same.
    // SAFETY: the simulated device moves nothing.
    drop(
        unsafe { cache.acquire(std::ptr::without_provenance(0x2000), 4096, Access::READ) }
            .expect("registers"),
    );
    assert_eq!(pindown::upkeep::sweep(&cache).expect("maps"), 1);
    assert!(cache.lookup(std::ptr::without_provenance(0x2000), 4096, Access::READ).is_none());
    assert!(cache.lookup(memory.as_ptr(), memory.len(), Access::READ).is_some());
    assert_eq!(cache.stats().events[EventKind::Sweep as usize], 1);
}

#[test]
fn memory_that_is_gone_is_found_by_the_worker() {
    let cache = builder().build().expect("builds");
    // SAFETY: the simulated device moves nothing.
    drop(
        unsafe { cache.acquire(std::ptr::without_provenance(0x2000), 4096, Access::READ) }
            .expect("registers"),
    );
    wait_until("the sweep came by", || cache.stats().bytes_registered == 0);
    assert_eq!(cache.stats().events[EventKind::Sweep as usize], 1);
}

#[test]
fn what_is_old_goes_although_it_is_used() {
    let builder = builder().widen(false);
    let cache = builder.max_age(Duration::from_millis(200)).build().expect("builds");
    let memory = vec![0u8; 1 << 14];
    let begin = Instant::now();
    wait_until("it was given up and made again", || {
        drop(acquire(&cache, &memory));
        cache.stats().registrations >= 3
    });
    assert!(begin.elapsed() >= Duration::from_millis(400), "twice its age at least: {:?}", cache.stats());
    wait_until("the last went", || cache.stats().bytes_registered == 0);
    assert_eq!(cache.stats().expired, cache.stats().registrations);
}

/// Processor time of this process's worker threads, in nanoseconds (proc_pid_schedstat(5)).
fn worker_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc").flatten();
    let workers = tasks.filter(|t| {
        std::fs::read_to_string(t.path().join("comm")).is_ok_and(|name| name.trim_end() == "pindown-worker")
    });
    let spent = |t: std::fs::DirEntry| {
        let text = std::fs::read_to_string(t.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    workers.filter_map(spent).sum()
}

/// Processor time, not duration, so a busy machine changes little.
#[test]
fn sweeping_a_hundred_thousand_takes_less_than_a_hundredth_of_a_core() {
    const REGIONS: usize = 100_000;
    let builder = builder().widen(false).export(false);
    let cache = builder.max_regions(200_000).max_bytes(u64::MAX).sweep(true).build().expect("builds");
    let memory = vec![0u8; REGIONS * 8192]; // never touched: address space only
    memory.chunks(8192).for_each(|part| drop(acquire(&cache, &part[..4096])));
    assert_eq!(cache.stats().regions_live, REGIONS as u64, "{:?}", cache.stats());
    let (begin, before) = (Instant::now(), worker_ns());
    std::thread::sleep(Duration::from_secs(4));
    let share = (worker_ns() - before) as f64 / begin.elapsed().as_nanos() as f64;
    println!("{:.2} % of a core", share * 100.0);
    assert!(share < 0.01, "{share}");
    assert_eq!(cache.stats().events[EventKind::Sweep as usize], 0, "all of it is mapped");
}
