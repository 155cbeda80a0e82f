//! [`Wake`]: how the worker sleeps and is woken from inside `free()`.

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering};

const IDLE: u32 = 0;
const POKED: u32 = 1;
const ASLEEP: u32 = 2;

/// A flag that one worker sleeps on. Waking takes no lock: the waker stores the flag and unparks
/// the sleeper, and a wake-up that comes between its check and its sleep is kept by the parker.
#[derive(Debug)]
pub(crate) struct Wake {
    state: AtomicU32,
    #[cfg(not(loom))]
    sleeper: std::sync::OnceLock<std::thread::Thread>,
}

impl Wake {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU32::new(IDLE),
            #[cfg(not(loom))]
            sleeper: std::sync::OnceLock::new(),
        }
    }

    /// There is work. One load when the worker already knows.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.state.load(Ordering::Acquire) == POKED {
            return;
        }
        if self.state.swap(POKED, Ordering::AcqRel) == ASLEEP {
            self.unpark();
        }
    }

    #[cfg(not(loom))]
    fn unpark(&self) {
        if let Some(thread) = self.sleeper.get() {
            thread.unpark(); // a futex wake: no allocation, no lock
        }
    }

    #[cfg(loom)]
    fn unpark(&self) {}

    /// Whether work was announced since the last call; takes the announcement.
    pub(crate) fn take(&self) -> bool {
        self.state.swap(IDLE, Ordering::AcqRel) == POKED
    }

    /// Sleeps until woken or `timeout` is over. For one thread at a time; the first to call owns
    /// the wake-ups.
    #[cfg(not(loom))]
    pub(crate) fn sleep(&self, timeout: Duration) {
        self.sleeper.get_or_init(std::thread::current);
        if self.state.compare_exchange(IDLE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            std::thread::park_timeout(timeout);
            let _ = self.state.compare_exchange(ASLEEP, IDLE, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    #[cfg(loom)]
    pub(crate) fn sleep(&self, _timeout: Duration) {
        loom::thread::yield_now();
    }
}
