//! [`Large`]: a long range registered in pieces, on several threads, under one handle.

use std::sync::Arc;

use pindown_core::{Access, PageRange, Provider, RangeError, Registration};

use super::job::{Job, Kind, Reply};
use super::sync::{Mutex, contained, lock};
use super::{Done, QueueError};
use crate::cache::Cache;
use crate::segments::{Segment, Segments};

/// How far a large submission got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes registered so far.
    pub done_bytes: usize,
    /// Bytes asked for.
    pub total_bytes: usize,
}

type Report = Box<dyn Fn(Progress) + Send + Sync>;

/// Shared by the pieces of one submission; the last to finish completes it.
pub(super) struct Large<P: Provider> {
    plan: Plan,
    report: Option<Report>,
    state: Mutex<State<P>>,
}

struct State<P: Provider> {
    pieces: Vec<Option<Segment<P>>>,
    left: usize,
    done_bytes: usize,
    /// The first.
    error: Option<QueueError>,
    reply: Option<Reply<P>>,
}

/// Where a range is cut: whole pages, so that no page is in two pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    addr: usize,
    len: usize,
    access: Access,
    first: usize,
    piece_bytes: usize,
}

impl Plan {
    pub(super) fn new(
        addr: usize,
        len: usize,
        access: Access,
        piece_bytes: usize,
    ) -> Result<Self, RangeError> {
        let first = PageRange::covering(addr, len)?.start();
        Ok(Self { addr, len, access, first, piece_bytes })
    }

    fn count(&self) -> usize {
        (self.addr + self.len - self.first).div_ceil(self.piece_bytes)
    }

    /// Address and length of a piece.
    fn piece(&self, index: usize) -> (usize, usize) {
        let start = self.first + index * self.piece_bytes;
        let end = start.saturating_add(self.piece_bytes).min(self.addr + self.len);
        (start.max(self.addr), end - start.max(self.addr))
    }

    /// All of it, if all of it is registered.
    pub(super) fn lookup<P: Provider>(&self, cache: &Cache<P>) -> Option<Segments<P>> {
        let found = (0..self.count()).map(|index| {
            let (addr, len) = self.piece(index);
            let held = cache.peek(std::ptr::with_exposed_provenance(addr), len, self.access)?;
            Some(Segment::new(addr, len, held))
        });
        found.collect::<Option<Vec<_>>>().map(Segments::new)
    }

    /// One job a piece.
    pub(super) fn jobs<P: Provider>(self, id: u64, reply: Reply<P>, report: Option<Report>) -> Vec<Job<P>> {
        let left = self.count();
        let pieces = std::iter::repeat_with(|| None).take(left).collect();
        let state = State { pieces, left, done_bytes: 0, error: None, reply: Some(reply) };
        let large = Arc::new(Large { plan: self, report, state: Mutex::new(state) });
        let job = |index| {
            let (addr, len) = self.piece(index);
            let reply = Reply::Piece { large: large.clone(), index };
            Job::new(id, Kind::Acquire { addr, len, access: self.access }, reply)
        };
        (0..left).map(job).collect()
    }
}

impl<P: Provider> std::fmt::Debug for Large<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Large").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl<P: Provider> Large<P> {
    pub(super) fn has_failed(&self) -> bool {
        lock(&self.state).error.is_some()
    }

    /// A piece is done. Once for each.
    pub(super) fn finish(&self, index: usize, result: Result<Done<P>, QueueError>) {
        match result {
            Ok(Done::Registered(held)) => self.keep(index, held),
            Ok(_) => self.fail(QueueError::Panicked), // pieces are acquisitions
            Err(error) => self.fail(error),
        }
        if let Some((reply, result)) = self.take_if_last() {
            reply.send(result);
        }
    }

    fn keep(&self, index: usize, held: Registration<P>) {
        let (addr, len) = self.plan.piece(index);
        let progress = {
            let mut state = lock(&self.state);
            state.pieces[index] = Some(Segment::new(addr, len, held));
            state.done_bytes += len;
            Progress { done_bytes: state.done_bytes, total_bytes: self.plan.len }
        };
        let Some(report) = &self.report else { return };
        if contained(|| report(progress)).is_none() {
            self.fail(QueueError::Panicked);
        }
    }

    fn fail(&self, error: QueueError) {
        lock(&self.state).error.get_or_insert(error);
    }

    #[allow(clippy::type_complexity)]
    fn take_if_last(&self) -> Option<(Reply<P>, Result<Done<P>, QueueError>)> {
        let mut state = lock(&self.state);
        state.left -= 1;
        if state.left > 0 {
            return None;
        }
        let pieces = std::mem::take(&mut state.pieces);
        let (reply, error) = (state.reply.take()?, state.error.take());
        drop(state);
        let result = match error {
            Some(error) => Err(error), // what was registered is put here, without the lock
            None => Ok(Done::Segments(Segments::new(pieces.into_iter().flatten().collect()))),
        };
        Some((reply, result))
    }
}
