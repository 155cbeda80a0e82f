//! The worker: the thread that deregisters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pindown_core::Provider;

use crate::upkeep::{Settings, Upkeep};
use crate::watches::Watches;

/// After a wake-up, how long deregistrations are gathered, so that one fence serves many. With
/// the deregistration itself well under the promised 10 ms.
const GATHER: Duration = Duration::from_millis(1);

/// Runs a core cache's [`drive`](pindown_core::Cache::drive) until dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    stop: Arc<AtomicBool>,
}

impl Worker {
    /// Starts it. It keeps the cache, also past the drop of `Worker`, until nothing is
    /// registered: what is held when the last `Cache` goes is deregistered after its put.
    pub(crate) fn start<P: Provider>(
        cache: pindown_core::Cache<P>,
        watches: Arc<Watches>,
        upkeep: Settings,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let builder = std::thread::Builder::new().name("pindown-worker".into());
        // Detached at once: it may have to wait for holders, the last drop may come from one of
        // them, and in a forked child there is no such thread to join or detach.
        drop(builder.spawn(move || run(&cache, &watches, &stopped, upkeep))?);
        Ok(Self { stop })
    }

    /// Tells it to end. [`Cache::wake_worker`](pindown_core::Cache::wake_worker) makes it notice.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
}

fn run<P: Provider>(
    cache: &pindown_core::Cache<P>,
    watches: &Watches,
    stop: &AtomicBool,
    settings: Settings,
) {
    crate::sys::block_signals();
    let mut upkeep = Upkeep::new(settings);
    while !stop.load(Ordering::Acquire) {
        cache.wait_for_work(upkeep.until_due());
        cache.drive_urgent();
        watches.dispatch(cache);
        std::thread::sleep(GATHER);
        cache.drive();
        watches.dispatch(cache);
        upkeep.tick(cache);
    }
    drop(upkeep);
    linger(cache);
}

/// Everything is doomed by now; waits for the last put.
fn linger<P: Provider>(cache: &pindown_core::Cache<P>) {
    cache.begin_close();
    while cache.drive() > 0 || cache.stats().regions_registered > 0 {
        std::thread::sleep(Duration::from_millis(4));
    }
}
