//! [`Acquire`]: a submission as a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use pindown_core::{Provider, Registration};

use super::{Done, QueueError};

/// Resolves to a registration. Needs no runtime: it is woken by the pool's thread. Dropping it leaks
/// nothing: a registration that comes later is put at once.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Acquire<P: Provider>(State<P>);

#[derive(Debug)]
enum State<P: Provider> {
    Ready(Option<Registration<P>>),
    Pending(Arc<Promise<P>>),
}

/// Shared by the future and its job.
#[derive(Debug)]
pub(super) struct Promise<P: Provider>(Mutex<Promised<P>>);

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
            Ok(_) => return, // only acquisitions are promised
            Err(error) => Err(error),
        };
        let mut promised = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let keep = if promised.abandoned { Some(result) } else { promised.result.replace(result) };
        let waker = promised.waker.take();
        drop(promised);
        drop(keep); // puts, without the lock
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<P: Provider> Acquire<P> {
    pub(super) fn ready(registration: Registration<P>) -> Self {
        Self(State::Ready(Some(registration)))
    }

    pub(super) fn pending() -> (Self, Arc<Promise<P>>) {
        let promised = Promised { result: None, waker: None, abandoned: false };
        let promise = Arc::new(Promise(Mutex::new(promised)));
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
        match &mut self.0 {
            State::Ready(registration) => {
                Poll::Ready(Ok(registration.take().expect("polled after it was ready")))
            }
            State::Pending(promise) => {
                let mut promised = promise.0.lock().unwrap_or_else(PoisonError::into_inner);
                match promised.result.take() {
                    Some(result) => Poll::Ready(result),
                    None => {
                        promised.waker = Some(context.waker().clone());
                        Poll::Pending
                    }
                }
            }
        }
    }
}

impl<P: Provider> Drop for Acquire<P> {
    fn drop(&mut self) {
        if let State::Pending(promise) = &self.0 {
            let mut promised = promise.0.lock().unwrap_or_else(PoisonError::into_inner);
            promised.abandoned = true;
            let result = promised.result.take();
            drop(promised);
            drop(result);
        }
    }
}
