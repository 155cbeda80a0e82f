//! What can be submitted.

use pindown_core::{Access, PageRange, Provider, Registration};

use super::done::Inbox;
use super::job::{self, Job, Kind, Reply};
use super::large::{Plan, Progress};
use super::{Acquire, Queue, Request, Submission, SubmitError, Submitted, Ticket};
use crate::segments::Segments;

impl<P: Provider> Queue<P> {
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
        if let Some(registration) = self.cache.peek(addr, len, access) {
            return Ok(Submission::Hit(registration));
        }
        let kind = Kind::Acquire { addr: addr.expose_provenance(), len, access };
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

    /// Asks for the registration of a range of any length, in [pieces](super::QueueBuilder::piece_bytes)
    /// that the pool's threads register in parallel, under one handle
    /// ([`Done::Segments`](super::Done::Segments)). It takes one place in the queue. If a piece fails so does
    /// the whole, with the first error, and what was registered is put.
    ///
    /// `report` is told after each piece how far it got, by several threads at once and so not always in
    /// order. Smaller submissions take turns with the pieces.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit).
    ///
    /// # Safety
    ///
    /// As [`submit`](Self::submit).
    pub unsafe fn submit_large(
        &self,
        addr: *const u8,
        len: usize,
        access: Access,
        user_data: u64,
        report: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Result<Submitted<Segments<P>>, SubmitError> {
        self.check_process()?;
        let addr = addr.expose_provenance();
        let Ok(plan) = Plan::new(addr, len, access, self.piece_bytes) else {
            // No range: completes with that error.
            return self.push(Kind::Acquire { addr, len, access }, user_data).map(Submitted::Pending);
        };
        if let Some(segments) = plan.lookup(&self.cache) {
            return Ok(Submitted::Hit(segments));
        }
        let reply = Reply::Inbox { place: Inbox::reserve(&self.inbox)?, user_data };
        let id = job::next_id();
        self.pool.push_pieces(plan.jobs(id, reply, Some(Box::new(report))))?;
        Ok(Submitted::Pending(Ticket(id)))
    }

    /// Readies pages, as a work request: faults them in for `access` (breaking copy-on-write for
    /// writing), so that a later registration or transfer does not wait. Linux 5.14
    /// (`MADV_POPULATE_READ`/`_WRITE`). Where the device faults by itself and the range is registered, it
    /// is asked to do so now. Completes with [`Done::Prefetched`](super::Done::Prefetched), which says how far it got.
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
        self.push(Kind::Prefetch { addr: addr.expose_provenance(), len, access }, user_data)
    }

    /// Readies pages, registers them, and calls `then` with the registration, on the pool's thread: post the
    /// transfer there. The completion comes after `then` returned and carries the registration; keep it until
    /// the transfer completed. If not all pages got ready, `then` is not called.
    ///
    /// If `then` panics the registration is put: it must not panic once it posted a transfer.
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
        let (addr, then) = (addr.expose_provenance(), Box::new(then));
        self.push(Kind::PrefetchThen { addr, len, access, then }, user_data)
    }

    /// Completes with [`Done::Flushed`](super::Done::Flushed) when the device has no registration of `range`
    /// any more.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit).
    pub fn flush(&self, range: PageRange, user_data: u64) -> Result<Ticket, SubmitError> {
        self.push(Kind::Flush { range }, user_data)
    }

    /// The same as [`submit`](Self::submit), as a future; see [`Acquire`].
    ///
    /// # Safety
    ///
    /// As [`submit`](Self::submit), until the registration is dropped. A future that is dropped before it is
    /// ready puts its registration as soon as it is made.
    pub unsafe fn acquire(&self, addr: *const u8, len: usize, access: Access) -> Acquire<P> {
        if let Some(registration) = self.cache.peek(addr, len, access) {
            return Acquire::ready(Ok(registration));
        }
        let place = match self.check_process().and_then(|()| Inbox::reserve(&self.inbox)) {
            Ok(place) => place,
            Err(error) => return Acquire::ready(Err(error.into())),
        };
        let (future, promise) = Acquire::pending();
        let kind = Kind::Acquire { addr: addr.expose_provenance(), len, access };
        // If the queue is closed, the job fulfils its promise with that.
        let _ = self.pool.push(Job::new(job::next_id(), kind, Reply::Promise { place, promise }));
        future
    }

    fn push(&self, kind: Kind<P>, user_data: u64) -> Result<Ticket, SubmitError> {
        self.check_process()?;
        let reply = Reply::Inbox { place: Inbox::reserve(&self.inbox)?, user_data };
        self.pool.push(Job::new(job::next_id(), kind, reply)).map(Ticket)
    }
}
