//! [`Cache`]: core's cache with its worker thread.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use pindown_core::{CloseError, Provider};

use crate::watches::Watches;
use crate::worker::Worker;

/// A coherent cache of memory registrations with a thread that deregisters. Cheap to clone; derefs
/// to [`pindown_core::Cache`], where the operations are.
///
/// When the last clone is dropped everything unheld is deregistered; what is held is, after its put.
#[derive(Debug)]
pub struct Cache<P: Provider>(Arc<Running<P>>);

#[derive(Debug)]
struct Running<P: Provider> {
    cache: pindown_core::Cache<P>,
    /// `None` for providers that belong to one thread: it calls `drive`.
    worker: Option<Worker>,
    watches: Arc<Watches>,
}

impl<P: Provider> Cache<P> {
    pub(crate) fn new(cache: pindown_core::Cache<P>, worker: Option<Worker>, watches: Arc<Watches>) -> Self {
        Self(Arc::new(Running { cache, worker, watches }))
    }

    pub(crate) fn watches(&self) -> &Watches {
        &self.0.watches
    }

    /// Ends the cache: later requests fail, everything unheld is deregistered; waits up to
    /// `timeout` for what is held.
    ///
    /// # Errors
    ///
    /// [`CloseError::Left`] says what is left. With a worker it is deregistered when it is put.
    pub fn close(self, timeout: Duration) -> Result<(), CloseError> {
        self.0.cache.clone().close(timeout)
    }
}

impl<P: Provider> Clone for Cache<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Provider> Deref for Cache<P> {
    type Target = pindown_core::Cache<P>;
    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.0.cache
    }
}

impl<P: Provider> Drop for Running<P> {
    fn drop(&mut self) {
        if let Some(worker) = &self.worker {
            worker.stop();
            self.cache.wake_worker();
        }
    }
}
