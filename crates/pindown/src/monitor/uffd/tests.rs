//! The monitor against the real kernel.

mod events;
mod files;
mod forks;
mod graces;
mod reuse;

use pindown_core::{Access, EventKind, Monitor, MonitorError, Notifier, PageRange, Subscription};

use super::{Uffd, UffdOptions};

/// A running monitor and what it reports. `None` where userfaultfd is refused.
struct Rig {
    monitor: Uffd,
    heard: Notifier,
}

impl Rig {
    fn new() -> Option<Self> {
        Self::with_options(UffdOptions::default())
    }

    fn with_options(options: UffdOptions) -> Option<Self> {
        let (monitor, heard) = (Uffd::with_options(options), Notifier::detached());
        match monitor.start(heard.clone()) {
            Ok(()) => Some(Self { monitor, heard }),
            Err(e @ MonitorError::Unavailable { .. }) => {
                println!("skipped: {e}");
                None
            }
            Err(e) => panic!("{e}"),
        }
    }

    fn subscribe(&self, range: PageRange) -> Subscription {
        self.monitor.subscribe(range, Access::READ_WRITE).unwrap()
    }

    /// Until the reader has dealt with what it read.
    fn wait_until_even(&self) {
        while self.heard.generation() % 2 == 1 {
            std::thread::yield_now();
        }
    }

    /// What is reported of `range` by the time `change` returned. Other tests' events overflow the
    /// set now and then; then there is no telling, and `None` is returned.
    fn hear(&self, range: PageRange, change: impl FnOnce()) -> Option<Vec<EventKind>> {
        self.heard.take_detached();
        let before = self.heard.generation();
        change();
        let after = self.heard.generation();
        self.wait_until_even();
        let all: Option<Vec<_>> = self.heard.take_detached().into_iter().collect();
        let kinds: Vec<_> = all?.into_iter().filter(|(r, _)| r.overlaps(range)).map(|(_, k)| k).collect();
        assert!(kinds.is_empty() || after != before, "reported, but the generation had not moved in time");
        Some(kinds)
    }
}

/// Like [`Rig::hear`], tried until nothing overflowed.
fn heard(rig: &Rig, mut prepare: impl FnMut() -> (PageRange, Box<dyn FnOnce()>)) -> Vec<EventKind> {
    for _ in 0..50 {
        let (range, change) = prepare();
        if let Some(kinds) = rig.hear(range, change) {
            return kinds;
        }
    }
    panic!("the set of pending events overflowed 50 times in a row");
}

/// Waits until a range that was discarded is cached again.
fn wait_out_grace(rig: &Rig, range: PageRange) -> Subscription {
    let start = std::time::Instant::now();
    loop {
        match rig.subscribe(range) {
            Subscription::Uncacheable(why) if why.starts_with("grace") => {
                assert!(start.elapsed().as_secs() < 20, "the grace period does not end");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

/// Tests that need the machine, or the process's threads, for themselves take turns.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
