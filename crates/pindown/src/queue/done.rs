//! [`Inbox`]: completions that wait to be polled, and the places that bound them.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use pindown_core::Provider;

use super::sync::{AtomicUsize, Condvar, Mutex, contained, lock};
use super::{Announce, Completion, QueueBuildError, SubmitError};
use crate::sys::eventfd::EventFd;

/// Bounded by places: one is taken before a submission and given back when its completion is polled.
#[derive(Debug)]
pub(super) struct Inbox<P: Provider> {
    depth: usize,
    outstanding: AtomicUsize,
    waiting: Mutex<VecDeque<Completion<P>>>,
    bell: Condvar,
    /// Raised while `waiting` is not empty; changed under its lock.
    event: EventFd,
    announce: Option<Box<dyn Announce>>,
    unannounced: AtomicU64,
}

/// One place in the inbox, to be filled by exactly one completion, or given back.
#[derive(Debug)]
pub(super) struct Place<P: Provider> {
    inbox: Arc<Inbox<P>>,
    filled: bool,
}

impl<P: Provider> Inbox<P> {
    pub(super) fn new(depth: usize, announce: Option<Box<dyn Announce>>) -> Result<Self, QueueBuildError> {
        Ok(Self {
            depth,
            outstanding: AtomicUsize::new(0),
            waiting: Mutex::new(VecDeque::with_capacity(depth.min(4096))),
            bell: Condvar::new(),
            event: EventFd::new().map_err(QueueBuildError::EventFd)?,
            announce,
            unannounced: AtomicU64::new(0),
        })
    }

    pub(super) fn reserve(inbox: &Arc<Self>) -> Result<Place<P>, SubmitError> {
        let depth = inbox.depth;
        let taken = inbox
            .outstanding
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < depth).then_some(n + 1));
        taken.map_err(|_| SubmitError::Full { depth })?;
        Ok(Place { inbox: inbox.clone(), filled: false })
    }

    fn push(&self, completion: Completion<P>) {
        let (user_data, ok) = (completion.user_data, completion.result.is_ok());
        let mut waiting = lock(&self.waiting);
        waiting.push_back(completion);
        if waiting.len() == 1 {
            self.event.raise();
        }
        drop(waiting);
        self.bell.notify_one();
        self.tell(user_data, ok);
    }

    fn tell(&self, user_data: u64, ok: bool) {
        let Some(announce) = &self.announce else { return };
        if !matches!(contained(|| announce.announce(user_data, ok)), Some(Ok(()))) {
            self.unannounced.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn pop(&self, waiting: &mut VecDeque<Completion<P>>) -> Option<Completion<P>> {
        let completion = waiting.pop_front()?;
        if waiting.is_empty() {
            self.event.lower();
        }
        self.outstanding.fetch_sub(1, Ordering::AcqRel);
        Some(completion)
    }

    pub(super) fn poll(&self) -> Option<Completion<P>> {
        self.pop(&mut lock(&self.waiting))
    }

    pub(super) fn wait(&self, timeout: Duration) -> Option<Completion<P>> {
        const FOR_EVER: Duration = Duration::from_secs(1 << 30);
        let deadline = Instant::now() + timeout.min(FOR_EVER);
        let mut waiting = lock(&self.waiting);
        loop {
            if let Some(completion) = self.pop(&mut waiting) {
                return Some(completion);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let woken = self.bell.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner);
            waiting = woken.0;
        }
    }

    pub(super) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Acquire)
    }

    pub(super) fn unannounced(&self) -> u64 {
        self.unannounced.load(Ordering::Relaxed)
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl<P: Provider> Place<P> {
    pub(super) fn fill(mut self, completion: Completion<P>) {
        self.filled = true;
        self.inbox.push(completion);
    }
}

impl<P: Provider> Drop for Place<P> {
    /// A submission that was refused after all, or whose result goes elsewhere.
    fn drop(&mut self) {
        if !self.filled {
            self.inbox.outstanding.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
