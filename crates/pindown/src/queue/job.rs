//! [`Job`]: one submission on its way to exactly one completion.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pindown_core::{Access, PageRange, Provider, Registration};

use super::done::Place;
use super::future::Promise;
use super::large::Large;
use super::sync::contained;
use super::{Completion, Done, QueueError, prefetch};
use crate::cache::Cache;

pub(super) type Then<P> = Box<dyn FnOnce(&Registration<P>) + Send>;

/// What is to be done.
pub(super) enum Kind<P: Provider> {
    Acquire {
        addr: usize,
        len: usize,
        access: Access,
    },
    Prefetch {
        addr: usize,
        len: usize,
        access: Access,
    },
    PrefetchThen {
        addr: usize,
        len: usize,
        access: Access,
        then: Then<P>,
    },
    Flush {
        range: PageRange,
    },
    /// Is told from outside.
    Watch,
}

/// Where the result goes.
#[derive(Debug)]
pub(super) enum Reply<P: Provider> {
    Inbox { place: Place<P>, user_data: u64 },
    Promise { place: Place<P>, promise: Arc<Promise<P>> },
    Piece { large: Arc<Large<P>>, index: usize },
}

pub(super) struct Job<P: Provider> {
    pub(super) id: u64,
    kind: Kind<P>,
    /// Taken by the completion. A job that is dropped with it completes as closed.
    reply: Option<Reply<P>>,
}

/// Names one submission among all queues'.
pub(super) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<P: Provider> std::fmt::Debug for Job<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<P: Provider> Reply<P> {
    pub(super) fn send(self, result: Result<Done<P>, QueueError>) {
        match self {
            Self::Inbox { place, user_data } => place.fill(Completion { user_data, result }),
            Self::Promise { place, promise } => {
                drop(place); // before whoever is woken submits again
                promise.fulfil(result);
            }
            Self::Piece { large, index } => large.finish(index, result),
        }
    }

    /// The result will not be needed.
    fn is_moot(&self) -> bool {
        match self {
            Self::Inbox { .. } => false,
            Self::Promise { promise, .. } => promise.is_abandoned(),
            Self::Piece { large, .. } => large.has_failed(),
        }
    }
}

impl<P: Provider> Job<P> {
    pub(super) fn new(id: u64, kind: Kind<P>, reply: Reply<P>) -> Self {
        Self { id, kind, reply: Some(reply) }
    }

    /// Does it. A panic completes it too.
    pub(super) fn run(mut self, cache: &Cache<P>) {
        if self.reply.as_ref().is_some_and(Reply::is_moot) {
            return self.complete(Err(QueueError::Cancelled));
        }
        let kind = std::mem::replace(&mut self.kind, Kind::Watch);
        let result = contained(|| kind.run(cache));
        self.complete(result.unwrap_or(Err(QueueError::Panicked)));
    }

    pub(super) fn complete(mut self, result: Result<Done<P>, QueueError>) {
        self.send(result);
    }

    /// Gives the submission back without a completion: it was never accepted.
    pub(super) fn refuse(mut self) {
        if let Some(Reply::Promise { promise, .. }) = self.reply.take() {
            promise.fulfil(Err(QueueError::Closed));
        }
    }

    fn send(&mut self, result: Result<Done<P>, QueueError>) {
        if let Some(reply) = self.reply.take() {
            reply.send(result);
        }
    }
}

impl<P: Provider> Drop for Job<P> {
    fn drop(&mut self) {
        self.send(Err(QueueError::Closed));
    }
}

impl<P: Provider> Kind<P> {
    fn run(self, cache: &Cache<P>) -> Result<Done<P>, QueueError> {
        match self {
            Self::Acquire { addr, len, access } => Ok(Done::Registered(acquire(cache, addr, len, access)?)),
            Self::Flush { range } => Ok(cache.flush(range).map(|()| Done::Flushed)?),
            Self::Prefetch { addr, len, access } => {
                let range = PageRange::covering(addr, len)?;
                let mut ready = prefetch(range, access);
                if let Some(held) = cache.peek(ptr(addr), len, access) {
                    ready.device = prefetch::on_device(cache, &held, range, access);
                }
                Ok(Done::Prefetched(ready, None))
            }
            Self::PrefetchThen { addr, len, access, then } => prefetch_then(cache, addr, len, access, then),
            Self::Watch => Err(QueueError::Closed),
        }
    }
}

fn prefetch_then<P: Provider>(
    cache: &Cache<P>,
    addr: usize,
    len: usize,
    access: Access,
    then: Then<P>,
) -> Result<Done<P>, QueueError> {
    let range = PageRange::covering(addr, len)?;
    let mut ready = prefetch(range, access);
    if ready.stop.is_some() {
        return Ok(Done::Prefetched(ready, None));
    }
    let registration = acquire(cache, addr, len, access)?;
    ready.device = prefetch::on_device(cache, &registration, range, access);
    then(&registration);
    Ok(Done::Prefetched(ready, Some(registration)))
}

fn ptr(addr: usize) -> *const u8 {
    std::ptr::with_exposed_provenance(addr)
}

fn acquire<P: Provider>(
    cache: &Cache<P>,
    addr: usize,
    len: usize,
    access: Access,
) -> Result<Registration<P>, QueueError> {
    Ok(crate::sys::acquire_for_submitter(cache, ptr(addr), len, access)?)
}
