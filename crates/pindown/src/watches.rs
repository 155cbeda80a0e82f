//! [`Watches`]: who is told when a watched region ends; the worker tells.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pindown_core::{Ended, Provider};

/// Called once, without a lock. `None`: the watch was cancelled.
pub(crate) type Tell = Box<dyn FnOnce(Option<Ended>) + Send>;

/// Watches by id, of all queues of a cache.
#[derive(Default)]
pub(crate) struct Watches(Mutex<HashMap<u64, (u64, Tell)>>);

impl std::fmt::Debug for Watches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watches").finish_non_exhaustive()
    }
}

impl Watches {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (u64, Tell)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters what `begin` returns; no news is dispatched in between. Lock order: this, then the cache's.
    pub(crate) fn insert(&self, id: u64, queue: u64, begin: impl FnOnce() -> Option<Tell>) -> bool {
        let mut watches = self.lock();
        let tell = begin();
        let begun = tell.is_some();
        watches.extend(tell.map(|tell| (id, (queue, tell))));
        begun
    }

    pub(crate) fn remove(&self, id: u64) -> Option<Tell> {
        self.lock().remove(&id).map(|watch| watch.1)
    }

    /// Takes out the watches of one queue.
    pub(crate) fn remove_queue(&self, queue: u64) -> HashMap<u64, (u64, Tell)> {
        let mut watches = self.lock();
        let (removed, kept) = std::mem::take(&mut *watches).into_iter().partition(|(_, w)| w.0 == queue);
        *watches = kept;
        removed
    }

    /// Tells whom the cache's last [`drive`](pindown_core::Cache::drive) concerns.
    pub(crate) fn dispatch<P: Provider>(&self, cache: &pindown_core::Cache<P>) {
        for (id, how) in cache.take_ended() {
            if let Some(tell) = self.remove(id) {
                tell(Some(how));
            }
        }
    }
}
