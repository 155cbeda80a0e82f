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
//! | [`AsFd`] | readable while completions wait: epoll, poll, an `AsyncFd` |
//! | [`Announce`] | into the application's own queue: an io_uring by [`MsgRing`], a verbs CQ |
//! | [`Queue::acquire`] | a `Future`, without a runtime |

mod builder;
mod done;
mod error;
mod future;
mod job;
mod large;
#[cfg(all(test, shuttle))]
mod model;
#[cfg(feature = "io-uring")]
mod msg_ring;
mod pool;
mod prefetch;
mod submit;
mod sync;
mod ticket;
mod watch;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use pindown_core::{Access, Ended, Provider, Registration};

use crate::cache::Cache;
use crate::segments::Segments;
use crate::sys::process::Process;
pub use builder::QueueBuilder;
use done::Inbox;
pub use error::{QueueBuildError, QueueError, SubmitError};
pub use future::Acquire;
pub use large::Progress;
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
    /// A long range is registered, in pieces.
    Segments(Segments<P>),
    /// The device has no registration of the range any more.
    Flushed,
    /// A watched registration's memory changed, or the device let go of it.
    Ended(Ended),
}

/// What a submission returns at once.
#[derive(Debug)]
pub enum Submitted<T> {
    /// The cache had it. There will be no completion.
    Hit(T),
    /// A completion will come.
    Pending(Ticket),
}

/// What [`Queue::submit`] returns at once.
pub type Submission<P> = Submitted<Registration<P>>;

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

/// A submission and completion queue over a cache. Dropping it [closes](Self::close) it, and puts
/// registrations that nobody polled.
///
/// A forked child cannot use its parent's queue: submissions say [`SubmitError::Forked`], nothing is
/// ever polled, and nothing hangs.
#[derive(Debug)]
pub struct Queue<P: Provider> {
    id: u64,
    cache: Cache<P>,
    inbox: Arc<Inbox<P>>,
    pool: Arc<Pool<P>>,
    piece_bytes: usize,
    /// The only thread that may register, where there is such.
    owner: Option<ThreadId>,
    process: Process,
}

impl<P: Provider> Queue<P> {
    /// A queue with the default settings.
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

    /// The cache it works on.
    pub fn cache(&self) -> &Cache<P> {
        &self.cache
    }

    /// Ends a submission that has not begun: it completes with [`QueueError::Cancelled`], from within this call.
    /// `false`: it has begun or is done, and completes as it will. Of a large submission the pieces that have
    /// not begun are left out, and it completes as cancelled once those that run are done. A watch ends.
    pub fn cancel(&self, ticket: Ticket) -> bool {
        if self.check_process().is_err() {
            return false;
        }
        if self.pool.cancel(ticket.0) {
            return true;
        }
        let Some(watch) = self.cache.watches().remove(ticket.0) else { return false };
        self.cache.unwatch(ticket.0);
        watch(None);
        true
    }

    /// The next completion, if one waits. Does not block.
    pub fn poll(&self) -> Option<Completion<P>> {
        self.check_process().ok()?;
        self.inbox.poll()
    }

    /// The next completion, waiting for it up to `timeout`. On the one thread that may register, does
    /// what is submitted first.
    pub fn wait(&self, timeout: Duration) -> Option<Completion<P>> {
        self.check_process().ok()?;
        if self.owner.is_some() {
            self.drive();
        }
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
    /// thread. Returns how many submissions (or pieces) were done; 0 on any other thread.
    pub fn drive(&self) -> usize {
        let foreign = self.owner.is_some_and(|owner| owner != std::thread::current().id());
        if foreign || self.check_process().is_err() {
            return 0;
        }
        let done = self.pool.run_here(&self.cache);
        self.cache.drive();
        if self.owner.is_some() {
            self.cache.watches().dispatch(&self.cache);
        }
        done
    }

    /// Takes no more submissions, completes what has not begun (and watches) with [`QueueError::Closed`],
    /// and waits for what runs, unless a closure or announcement that itself runs there calls it. What is
    /// complete can still be polled.
    pub fn close(&self) {
        if self.check_process().is_ok() {
            self.pool.close();
            self.end_watches();
        }
    }

    fn check_process(&self) -> Result<(), SubmitError> {
        if self.process.is_current() { Ok(()) } else { Err(SubmitError::Forked) }
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
        self.close();
        if self.check_process().is_err() {
            // Its jobs complete in the parent; here that would take locks that nobody releases, and
            // raise an eventfd that is the parent's too.
            std::mem::forget(self.pool.clone());
        }
    }
}
