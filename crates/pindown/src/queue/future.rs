//! [`Acquire`]: a submission as a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pindown_core::{AcquireError, Provider, Registration};

use super::sync::{Mutex, contained, lock};
use super::{Done, QueueError};
use crate::sys::process::Process;

/// Resolves to a registration. Needs no runtime: it is woken by the pool's thread, and so can be awaited in
/// any, tokio's included. It takes one of the queue's places until it is done.
///
/// Dropping it leaks nothing: what has not begun is not begun, and a registration that comes later is put at once.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Acquire<P: Provider>(State<P>);

#[derive(Debug)]
enum State<P: Provider> {
    Ready(Result<Registration<P>, QueueError>),
    Pending(Arc<Promise<P>>),
    Taken,
}

/// Shared by the future and its job.
#[derive(Debug)]
pub(super) struct Promise<P: Provider> {
    /// A forked child has its parent's promises, whose locks nobody may be left to release.
    process: Process,
    promised: Mutex<Promised<P>>,
}

#[derive(Debug)]
struct Promised<P: Provider> {
    result: Option<Result<Registration<P>, QueueError>>,
    waker: Option<Waker>,
    abandoned: bool,
}

impl<P: Provider> Promise<P> {
    pub(super) fn fulfil(&self, result: Result<Done<P>, QueueError>) {
        let result = match result {
            Ok(Done::Registered(registration)) => Ok(registration),
            Ok(_) => unreachable!("only acquisitions are promised"),
            Err(error) => Err(error),
        };
        let mut promised = lock(&self.promised);
        let discarded = if promised.abandoned { Some(result) } else { promised.result.replace(result) };
        let waker = promised.waker.take();
        drop(promised);
        drop(discarded); // puts, without the lock
        if let Some(waker) = waker {
            contained(|| waker.wake());
        }
    }

    /// Nobody waits for it any more.
    pub(super) fn is_abandoned(&self) -> bool {
        lock(&self.promised).abandoned
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Registration<P>, QueueError>> {
        if !self.process.is_current() {
            return Poll::Ready(Err(AcquireError::Forked.into()));
        }
        let mut promised = lock(&self.promised);
        match promised.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                promised.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn abandon(&self) {
        if !self.process.is_current() {
            return;
        }
        let mut promised = lock(&self.promised);
        promised.abandoned = true;
        let left = (promised.result.take(), promised.waker.take());
        drop(promised);
        drop(left);
    }
}

impl<P: Provider> Acquire<P> {
    pub(super) fn ready(result: Result<Registration<P>, QueueError>) -> Self {
        Self(State::Ready(result))
    }

    pub(super) fn pending() -> (Self, Arc<Promise<P>>) {
        let promised = Mutex::new(Promised { result: None, waker: None, abandoned: false });
        let promise = Arc::new(Promise { process: Process::current(), promised });
        (Self(State::Pending(promise.clone())), promise)
    }
}

// Nothing in it is pinned.
impl<P: Provider> Unpin for Acquire<P> {}

impl<P: Provider> Future for Acquire<P> {
    type Output = Result<Registration<P>, QueueError>;

    /// # Panics
    ///
    /// When polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Pending(promise) = &self.0 {
            let result = std::task::ready!(promise.poll(context));
            self.0 = State::Ready(result);
        }
        match std::mem::replace(&mut self.0, State::Taken) {
            State::Ready(result) => Poll::Ready(result),
            _ => panic!("polled after it was ready"),
        }
    }
}

impl<P: Provider> Drop for Acquire<P> {
    fn drop(&mut self) {
        if let State::Pending(promise) = &self.0 {
            promise.abandon();
        }
    }
}
