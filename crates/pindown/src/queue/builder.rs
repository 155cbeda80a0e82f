//! [`QueueBuilder`]: settings of a queue.

use std::sync::Arc;

use pindown_core::{Affinity, PAGE_SIZE, Provider};

use super::done::Inbox;
use super::pool::Pool;
use super::{Announce, Queue, QueueBuildError, job};
use crate::cache::Cache;
use crate::sys::process::Process;

/// Settings of a [`Queue`].
#[derive(Debug)]
#[must_use]
pub struct QueueBuilder {
    depth: usize,
    threads: Option<usize>,
    piece_bytes: usize,
    announce: Option<Box<dyn Announce>>,
}

impl Default for QueueBuilder {
    fn default() -> Self {
        Self { depth: 256, threads: None, piece_bytes: 64 << 20, announce: None }
    }
}

impl QueueBuilder {
    /// Most submissions that are pending or not yet polled. Default 256.
    pub fn depth(mut self, depth: usize) -> Self {
        self.depth = depth.max(1);
        self
    }

    /// Threads that register. Default: what the provider bears
    /// ([`ProviderCaps::register_threads`](pindown_core::ProviderCaps::register_threads)). None, whatever is
    /// set, for a provider that belongs to one thread, which calls [`Queue::drive`].
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    /// The pieces of [`Queue::submit_large`], in bytes; rounded to pages, and to what the provider can
    /// register at once. Default 64 MiB. On io_uring shorter ones are not registered in parallel.
    pub fn piece_bytes(mut self, bytes: usize) -> Self {
        self.piece_bytes = bytes;
        self
    }

    /// Also tell the application's own queue.
    pub fn announce(mut self, announce: impl Announce) -> Self {
        self.announce = Some(Box::new(announce));
        self
    }

    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// When a thread or eventfd cannot be made.
    pub fn build<P: Provider>(self, cache: &Cache<P>) -> Result<Queue<P>, QueueBuildError> {
        let inbox = Arc::new(Inbox::new(self.depth, self.announce)?);
        let owner = match cache.provider().affinity() {
            Affinity::OwnerThread(owner) => Some(owner),
            _ => None,
        };
        let threads = self.threads.unwrap_or(cache.provider().caps().register_threads).max(1);
        let pool = Pool::start(cache, if owner.is_some() { 0 } else { threads })?;
        let piece_bytes = piece_bytes(cache, self.piece_bytes);
        let process = Process::current();
        Ok(Queue { id: job::next_id(), cache: cache.clone(), inbox, pool, piece_bytes, owner, process })
    }
}

/// In whole pages, at least one, at most what the provider registers at once.
fn piece_bytes<P: Provider>(cache: &Cache<P>, wanted: usize) -> usize {
    let most = usize::try_from(cache.provider().caps().max_region_bytes).unwrap_or(usize::MAX);
    (wanted.min(most) & !(PAGE_SIZE - 1)).max(PAGE_SIZE)
}
