//! [`Queue`]: non-blocking registration. Submit, go on, and find the result on a completion queue.
//!
//! A submission that the cache can serve returns its [`Registration`] at once
//! ([`Submission::Hit`]); any other is [`Submission::Pending`], done by a small pool of threads, and
//! completes exactly once, whatever happens: success, refusal, cancellation, a panic in the provider,
//! or the end of the queue. Results wait in the queue until they are polled; places are bounded by
//! the queue's depth, and a submission without a place is refused ([`SubmitError::Full`]), not queued.
//!
//! Completions arrive in the order in which they finish, which is not the order of submission; two
//! submissions that one registration serves complete in any order.
//!
//! | to learn of completions | |
//! |---|---|
//! | [`Queue::poll`] | from the thread's own loop |
//! | [`Queue::wait`] | blocking, with a time limit |
//! | [`AsFd`](std::os::fd::AsFd) | readable while completions wait: epoll, poll, an `AsyncFd` |
//! | [`Announce`] | into the application's own queue: an io_uring by [`MsgRing`], a verbs CQ |
//! | [`Queue::acquire`] | a `Future`, without a runtime |

mod done;
mod error;
mod future;
mod job;
#[cfg(feature = "io-uring")]
mod msg_ring;
mod pool;
mod prefetch;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use pindown_core::{Access, Affinity, PageRange, Provider, Registration};

use crate::cache::Cache;
use done::Inbox;
pub use error::{QueueBuildError, QueueError, SubmitError};
pub use future::Acquire;
use job::{Job, Kind, Reply};
#[cfg(feature = "io-uring")]
pub use msg_ring::MsgRing;
use pool::Pool;
pub use prefetch::{Prefetched, Stop, prefetch};

/// What a submission came to.
#[derive(Debug)]
pub struct Completion<P: Provider> {
    /// As submitted.
    pub user_data: u64,
    /// The result.
    pub result: Result<Done<P>, QueueError>,
}

/// A completed submission's result.
#[derive(Debug)]
#[non_exhaustive]
pub enum Done<P: Provider> {
    /// The range is registered and held.
    Registered(Registration<P>),
    /// Pages are ready; and registered, where that was asked for and all of them are.
    Prefetched(Prefetched, Option<Registration<P>>),
    /// The device has no registration of the range any more.
    Flushed,
}

/// What [`Queue::submit`] returns at once.
#[derive(Debug)]
pub enum Submission<P: Provider> {
    /// The cache had it. There will be no completion.
    Hit(Registration<P>),
    /// A completion will come.
    Pending(Ticket),
}

/// Names a pending submission, to cancel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

/// Tells the application's own queue of a completion. Called once a completion, by the thread that
/// finished it, after it can be polled.
pub trait Announce: Send + Sync + std::fmt::Debug + 'static {
    /// `user_data` completed; `ok` says whether it succeeded. On failure the completion still waits in
    /// the [`Queue`], and [`Queue::unannounced`] counts it.
    fn announce(&self, user_data: u64, ok: bool) -> std::io::Result<()>;
}

/// One request of [`Queue::submit_many`].
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// First byte.
    pub addr: *const u8,
    /// Length in bytes.
    pub len: usize,
    /// Rights.
    pub access: Access,
    /// Comes back with the completion.
    pub user_data: u64,
}

/// A submission and completion queue over a cache. Dropping it ends it: what has not begun completes
/// with [`QueueError::Closed`], what runs is waited for, and registrations nobody polled are put.
#[derive(Debug)]
pub struct Queue<P: Provider> {
    cache: Cache<P>,
    inbox: Arc<Inbox<P>>,
    pool: Arc<Pool<P>>,
}

/// Settings of a [`Queue`].
#[derive(Debug)]
pub struct QueueBuilder {
    depth: usize,
    threads: usize,
    announce: Option<Box<dyn Announce>>,
}

impl Default for QueueBuilder {
    fn default() -> Self {
        Self { depth: 256, threads: default_threads(), announce: None }
    }
}

fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get()).clamp(2, 4)
}

impl QueueBuilder {
    /// Most submissions that are pending or not yet polled. Default 256.
    pub fn depth(mut self, depth: usize) -> Self {
        self.depth = depth.max(1);
        self
    }

    /// Threads that register. Default: the processors, 2 to 4; none for a provider that belongs
    /// to one thread, which calls [`Queue::drive`].
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
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
        let owned = matches!(cache.provider().affinity(), Affinity::OwnerThread(_));
        let pool = Pool::start(cache, if owned { 0 } else { self.threads })?;
        Ok(Queue { cache: cache.clone(), inbox, pool })
    }
}

impl<P: Provider> Queue<P> {
    /// A queue with default settings.
    ///
    /// # Errors
    ///
    /// As [`QueueBuilder::build`].
    pub fn new(cache: &Cache<P>) -> Result<Self, QueueBuildError> {
        QueueBuilder::default().build(cache)
    }

    /// Settings, then [`QueueBuilder::build`].
    pub fn builder() -> QueueBuilder {
        QueueBuilder::default()
    }

    /// Asks for a registration. Never blocks and never registers on this thread.
    ///
    /// # Errors
    ///
    /// [`SubmitError::Full`]: poll completions, then submit again. Nothing was submitted.
    ///
    /// # Safety
    ///
    /// As [`Cache::acquire`](pindown_core::Cache::acquire), from now until the completion's
    /// registration is dropped.
    pub unsafe fn submit(
        &self,
        addr: *const u8,
        len: usize,
        access: Access,
        user_data: u64,
    ) -> Result<Submission<P>, SubmitError> {
        if let Some(registration) = self.cache.lookup(addr, len, access) {
            return Ok(Submission::Hit(registration));
        }
        let kind = Kind::Acquire { addr: addr.addr(), len, access };
        Ok(Submission::Pending(self.push(kind, user_data)?))
    }

    /// Submits many; stops at the first that has no place. Returns what became of those submitted, in order.
    ///
    /// # Safety
    ///
    /// As [`submit`](Self::submit), for each.
    pub unsafe fn submit_many(&self, requests: &[Request]) -> Vec<Submission<P>> {
        let submit = |r: &Request| {
            // SAFETY: the caller's promise, for each.
            unsafe { self.submit(r.addr, r.len, r.access, r.user_data) }.ok()
        };
        requests.iter().map_while(submit).collect()
    }

    /// Readies pages, as a work request: faults them in for `access` (breaking copy-on-write for
    /// writing), so that a later registration or transfer does not wait. Linux 5.14
    /// (`MADV_POPULATE_READ`/`_WRITE`). Completes with [`Done::Prefetched`], which says how far it got.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit).
    pub fn prefetch(
        &self,
        addr: *const u8,
        len: usize,
        access: Access,
        user_data: u64,
    ) -> Result<Ticket, SubmitError> {
        self.push(Kind::Prefetch { addr: addr.addr(), len, access, register: false, then: None }, user_data)
    }

    /// Readies pages, registers them, and calls `then` with the registration, on the pool's thread: post the
    /// transfer there. The completion comes after `then` returned and carries the registration; keep it until
    /// the transfer completed. If not all pages got ready, `then` is not called.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit).
    ///
    /// # Safety
    ///
    /// As [`submit`](Self::submit).
    pub unsafe fn prefetch_then(
        &self,
        addr: *const u8,
        len: usize,
        access: Access,
        user_data: u64,
        then: impl FnOnce(&Registration<P>) + Send + 'static,
    ) -> Result<Ticket, SubmitError> {
        let then: Option<job::Then<P>> = Some(Box::new(then));
        self.push(Kind::Prefetch { addr: addr.addr(), len, access, register: true, then }, user_data)
    }

    /// Completes with [`Done::Flushed`] when the device has no registration of `range` any more.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit).
    pub fn flush(&self, range: PageRange, user_data: u64) -> Result<Ticket, SubmitError> {
        self.push(Kind::Flush { range }, user_data)
    }

    fn push(&self, kind: Kind<P>, user_data: u64) -> Result<Ticket, SubmitError> {
        let reply = Reply::Inbox { place: Inbox::reserve(&self.inbox)?, user_data };
        self.pool.push(Job::new(kind, reply)).map(Ticket)
    }

    /// The same as a future; see [`Acquire`].
    ///
    /// # Safety
    ///
    /// As [`submit`](Self::submit), until the registration is dropped. A future that is dropped before it is
    /// ready puts its registration as soon as it is made.
    pub unsafe fn acquire(&self, addr: *const u8, len: usize, access: Access) -> Acquire<P> {
        if let Some(registration) = self.cache.lookup(addr, len, access) {
            return Acquire::ready(registration);
        }
        let (future, promise) = Acquire::pending();
        let kind = Kind::Acquire { addr: addr.addr(), len, access };
        // A refused job is dropped, which completes its promise.
        let _ = self.pool.push(Job::new(kind, Reply::Promise(promise)));
        future
    }

    /// Ends a submission that has not begun: it completes with [`QueueError::Cancelled`]. `false`: it has
    /// begun or is done, and completes as it will.
    pub fn cancel(&self, ticket: Ticket) -> bool {
        self.pool.cancel(ticket.0)
    }

    /// The next completion, if one waits. Does not block.
    pub fn poll(&self) -> Option<Completion<P>> {
        self.inbox.poll()
    }

    /// The next completion, waiting for it up to `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<Completion<P>> {
        self.inbox.wait(timeout)
    }

    /// Submissions that are pending or wait to be polled.
    pub fn outstanding(&self) -> usize {
        self.inbox.outstanding()
    }

    /// Completions that could not be announced to the application's own queue.
    pub fn unannounced(&self) -> u64 {
        self.inbox.unannounced()
    }

    /// For a provider that belongs to one thread: does what is submitted, and the cache's due work, on this
    /// thread. Returns how many submissions were done.
    pub fn drive(&self) -> usize {
        self.cache.drive();
        self.pool.run_here(&self.cache)
    }
}

impl<P: Provider> AsFd for Queue<P> {
    /// Readable while completions wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inbox.as_fd()
    }
}

impl<P: Provider> Drop for Queue<P> {
    fn drop(&mut self) {
        self.pool.close();
    }
}
