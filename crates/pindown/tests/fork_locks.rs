//! A fork may catch other threads with the cache's locks held, for ever in the child: nothing that the child
//! may call waits for one.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pindown::monitor::Manual;
use pindown::provider::sim::Sim;
use pindown::watch::Watch;
use pindown::{Access, Builder, Cache, MonitorChoice, PAGE_SIZE, PageRange};
use support::child::{fork, reap_within};

const FORKS: usize = 150;

/// Forks while `busy` runs on three threads; `child` runs in each child and must end well.
fn fork_beside(busy: impl Fn(usize) + Sync, child: impl Fn()) {
    let stop = AtomicBool::new(false);
    let ends_well =
        || reap_within(fork(&child), Duration::from_secs(10)).is_some_and(|status| status.success());
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (stop, busy) = (&stop, &busy);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    busy(thread);
                }
            });
        }
        let bad = (0..FORKS).find(|_| !ends_well());
        stop.store(true, Ordering::Relaxed);
        assert_eq!(bad, None, "of {FORKS} children, this one hung or failed");
    });
}

#[test]
fn the_cache_in_a_child_waits_for_nobody() {
    let cache: Cache<Sim> = Builder::new(Sim::new()).monitor(MonitorChoice::Uncached).build().unwrap();
    let at = |page: usize| std::ptr::without_provenance(0x5000_0000 + page * PAGE_SIZE);
    let busy = |thread| {
        // SAFETY: the simulated device touches no memory.
        drop(unsafe { cache.acquire(at(thread), PAGE_SIZE, Access::READ) });
    };
    fork_beside(busy, || {
        cache.wait_for_work(Duration::from_millis(1));
        let _ = (cache.drive(), cache.stats(), cache.flush(PageRange::from_pages(0, 1).unwrap()));
    });
}

#[test]
fn a_watch_in_a_child_waits_for_nobody() {
    let watch = Watch::with(std::sync::Arc::new(Manual::new())).unwrap();
    let range = |page| PageRange::from_pages(0x5000 + page, 1).unwrap();
    let busy = |thread: usize| {
        let _ = watch.register(range(thread as u64), thread as u64);
        watch.read(&mut Vec::new());
        let _ = watch.unregister(thread as u64);
    };
    fork_beside(busy, || {
        watch.read(&mut Vec::new());
        let _ = (watch.register(range(9), 9), watch.unregister(1), watch.generation());
    });
}
