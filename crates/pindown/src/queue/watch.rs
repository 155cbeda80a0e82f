//! Watched registrations: told on the queue when their memory changed.

use pindown_core::{Provider, Registration};

use super::done::Inbox;
use super::job::{self, Job, Kind, Reply};
use super::{Done, Queue, QueueError, SubmitError, Ticket};
use crate::watches::Tell;

impl<P: Provider> Queue<P> {
    /// Completes with [`Done::Ended`] once the memory of `registration` changed (its transfers move the old
    /// pages), or the device let go of it. Does not hold it: hold it yourself, or learn of its end. A
    /// registration that is stale already completes too. [`cancel`](Self::cancel) ends the watch.
    ///
    /// The news comes from the cache's worker, within milliseconds of the change; with a provider that
    /// belongs to one thread, from its [`drive`](Self::drive).
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit): a watch takes a place in the queue. [`SubmitError::OtherCache`] when the
    /// registration is not of this queue's cache.
    pub fn watch_stale(&self, registration: &Registration<P>, user_data: u64) -> Result<Ticket, SubmitError> {
        self.check_process()?;
        let place = Inbox::reserve(&self.inbox)?;
        let id = job::next_id();
        let begin = || {
            self.cache.watch(registration, id).then(|| {
                let job = Job::new(id, Kind::Watch, Reply::Inbox { place, user_data });
                Box::new(move |how: Option<_>| {
                    job.complete(how.map(Done::Ended).ok_or(QueueError::Cancelled));
                }) as Tell
            })
        };
        if !self.cache.watches().insert(id, self.id, begin) {
            return Err(SubmitError::OtherCache);
        }
        if self.pool.is_closed() {
            self.end_watches();
        }
        Ok(Ticket(id))
    }

    pub(super) fn end_watches(&self) {
        // Dropped, a watch completes as closed.
        for (id, _watch) in self.cache.watches().remove_queue(self.id) {
            self.cache.unwatch(id);
        }
    }
}
