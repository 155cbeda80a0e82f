//! [`Flight`]: one registration in the making, which concurrent misses share.

use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, lock};
use crate::{Access, AcquireError, PageRange};

/// A registration that one thread makes and others may wait for.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) range: PageRange,
    pub(crate) access: Access,
    /// Others may wait for it; not so for registrations that are used once.
    shared: bool,
    /// The range changed since the flight began: what it registers may be stale already. Set under
    /// the cache's lock.
    invalidated: AtomicBool,
    end: Mutex<End>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct End {
    landed: Option<Landed>,
    /// Somebody waits: ringing the bell is a system call.
    awaited: bool,
}

/// How a flight ended.
#[derive(Clone, Debug)]
pub(crate) enum Landed {
    /// The region is published: look it up.
    Published,
    /// There is none to share (used once, or its range kept changing): look again.
    Again,
    /// It failed; nobody who waited tries again, or a refusal would be met by a storm.
    Failed(AcquireError),
}

impl Flight {
    pub(crate) fn new(range: PageRange, access: Access, shared: bool) -> Self {
        Self {
            range,
            access,
            shared,
            invalidated: AtomicBool::new(false),
            end: Mutex::new(End::default()),
            bell: Condvar::new(),
        }
    }

    /// Whether waiting for it can answer a request.
    pub(crate) fn serves(&self, range: PageRange, access: Access) -> bool {
        self.range.contains(range) && self.access.serves(access) && self.is_shared()
    }

    /// Whether what it makes will be there for others.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared && !self.is_invalidated()
    }

    pub(crate) fn invalidate(&self) {
        self.invalidated.store(true, Ordering::Release);
    }

    pub(crate) fn is_invalidated(&self) -> bool {
        self.invalidated.load(Ordering::Acquire)
    }

    /// Ends the flight; the first end counts.
    pub(crate) fn land(&self, how: Landed) {
        let awaited = {
            let mut end = lock(&self.end);
            end.landed.get_or_insert(how);
            end.awaited
        };
        if awaited {
            self.bell.notify_all();
        }
    }

    /// Waits for the end. No lock of the cache may be held.
    pub(crate) fn wait(&self) -> Landed {
        let mut end = lock(&self.end);
        loop {
            if let Some(how) = &end.landed {
                return how.clone();
            }
            end.awaited = true;
            end = self.bell.wait(end).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}
