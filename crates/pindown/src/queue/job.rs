//! [`Job`]: one submission on its way to exactly one completion.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pindown_core::{Access, PageRange, Provider, Registration};

use super::done::Place;
use super::future::Promise;
use super::{Completion, Done, QueueError, prefetch};
use crate::cache::Cache;

pub(super) type Then<P> = Box<dyn FnOnce(&Registration<P>) + Send>;

/// What is to be done.
pub(super) enum Kind<P: Provider> {
    Acquire { addr: usize, len: usize, access: Access },
    Prefetch { addr: usize, len: usize, access: Access, register: bool, then: Option<Then<P>> },
    Flush { range: PageRange },
}

/// Where the result goes.
#[derive(Debug)]
pub(super) enum Reply<P: Provider> {
    Inbox { place: Place<P>, user_data: u64 },
    Promise(Arc<Promise<P>>),
}

pub(super) struct Job<P: Provider> {
    pub(super) id: u64,
    kind: Kind<P>,
    /// Taken by the completion. A job that is dropped with it completes as closed.
    reply: Option<Reply<P>>,
}

impl<P: Provider> std::fmt::Debug for Job<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<P: Provider> Job<P> {
    pub(super) fn new(kind: Kind<P>, reply: Reply<P>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), kind, reply: Some(reply) }
    }

    /// Does it. A panic completes it too.
    pub(super) fn run(mut self, cache: &Cache<P>) {
        let kind = std::mem::replace(&mut self.kind, Kind::Flush { range: PageRange::everything() });
        let result = catch_unwind(AssertUnwindSafe(|| kind.run(cache)));
        self.complete(result.unwrap_or(Err(QueueError::Panicked)));
    }

    pub(super) fn complete(mut self, result: Result<Done<P>, QueueError>) {
        self.send(result);
    }

    /// Gives the submission back without a completion: it was never accepted.
    pub(super) fn refuse(mut self) {
        if let Some(Reply::Promise(promise)) = self.reply.take() {
            promise.fulfil(Err(QueueError::Closed));
        }
    }

    fn send(&mut self, result: Result<Done<P>, QueueError>) {
        match self.reply.take() {
            Some(Reply::Inbox { place, user_data }) => place.fill(Completion { user_data, result }),
            Some(Reply::Promise(promise)) => promise.fulfil(result),
            None => {}
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
            Self::Prefetch { addr, len, access, register, then } => {
                let ready = prefetch(PageRange::covering(addr, len)?, access);
                if !register || ready.stop.is_some() {
                    return Ok(Done::Prefetched(ready, None));
                }
                let registration = acquire(cache, addr, len, access)?;
                if let Some(then) = then {
                    then(&registration);
                }
                Ok(Done::Prefetched(ready, Some(registration)))
            }
        }
    }
}

fn acquire<P: Provider>(
    cache: &Cache<P>,
    addr: usize,
    len: usize,
    access: Access,
) -> Result<Registration<P>, QueueError> {
    let addr = std::ptr::with_exposed_provenance(addr);
    Ok(crate::sys::acquire_for_submitter(cache, addr, len, access)?)
}
