//! Errors of the queue.

use std::io;

use pindown_core::{AcquireError, FlushError, RangeError};

/// Why a queue could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueBuildError {
    /// No eventfd: raise `ulimit -n`.
    #[error("no eventfd for the completion queue (raise `ulimit -n`)")]
    EventFd(#[source] io::Error),
    /// No thread: raise `ulimit -u` or the cgroup's pids limit.
    #[error("no thread for the registration pool (raise `ulimit -u`)")]
    Thread(#[source] io::Error),
}

/// Why nothing was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// As many submissions as the queue is deep are pending or not polled.
    #[error("the queue is full ({depth} submissions are pending or not polled): poll completions")]
    Full {
        /// The queue's depth.
        depth: usize,
    },
    /// The queue is closed.
    #[error("the queue is closed")]
    Closed,
    /// This process was forked: the queue's threads are the parent's.
    #[error("this queue belongs to the parent process: build a new cache and queue after fork")]
    Forked,
    /// The registration to watch was made by another cache than this queue's.
    #[error("the registration is another cache's: watch it on a queue of that cache")]
    OtherCache,
}

/// Why a submission failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The registration.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The flush.
    #[error(transparent)]
    Flush(#[from] FlushError),
    /// The range.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// It could not be submitted (as a future).
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// [`Queue::cancel`](super::Queue::cancel) was in time.
    #[error("cancelled before it began, or before all its pieces had")]
    Cancelled,
    /// The queue ended before it began.
    #[error("the queue was closed before it began")]
    Closed,
    /// The provider, the monitor or the caller's closure panicked.
    #[error("it panicked in the provider, the monitor, or a closure of the submission")]
    Panicked,
}
