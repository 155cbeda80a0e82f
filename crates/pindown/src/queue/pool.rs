//! [`Pool`]: the threads that register.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use pindown_core::Provider;

use super::job::Job;
use super::sync::{Condvar, Mutex, contained, lock, thread};
use super::{QueueBuildError, QueueError, SubmitError};
use crate::cache::Cache;

#[derive(Debug)]
pub(super) struct Pool<P: Provider> {
    work: Mutex<Work<P>>,
    bell: Condvar,
    idle: Condvar,
}

#[derive(Debug)]
struct Work<P: Provider> {
    jobs: VecDeque<Job<P>>,
    /// Parts of large submissions, which take turns with the others.
    pieces: VecDeque<Job<P>>,
    piece_next: bool,
    threads: Vec<thread::ThreadId>,
    running: usize,
    closed: bool,
}

impl<P: Provider> Work<P> {
    fn pop(&mut self) -> Option<Job<P>> {
        self.piece_next = !self.piece_next;
        let (first, second) = match self.piece_next {
            true => (&mut self.pieces, &mut self.jobs),
            false => (&mut self.jobs, &mut self.pieces),
        };
        first.pop_front().or_else(|| second.pop_front())
    }

    /// Takes out the jobs of one submission.
    fn remove(&mut self, id: u64) -> Vec<Job<P>> {
        let (removed, kept) = self.pieces.drain(..).partition(|j| j.id == id);
        self.pieces = kept;
        let mut removed: Vec<_> = VecDeque::into(removed);
        let at = self.jobs.iter().position(|j| j.id == id);
        removed.extend(at.and_then(|at| self.jobs.remove(at)));
        removed
    }
}

/// A thread is done with a job, however that ended.
struct Finish<'a, P: Provider>(&'a Pool<P>);

impl<P: Provider> Drop for Finish<'_, P> {
    fn drop(&mut self) {
        lock(&self.0.work).running -= 1;
        self.0.idle.notify_all();
    }
}

impl<P: Provider> Pool<P> {
    /// Starts `threads` threads; they end after `close`.
    pub(super) fn start(cache: &Cache<P>, threads: usize) -> Result<Arc<Self>, QueueBuildError> {
        let work = Work {
            jobs: VecDeque::new(),
            pieces: VecDeque::new(),
            piece_next: false,
            threads: Vec::new(),
            running: 0,
            closed: false,
        };
        let pool = Arc::new(Self { work: Mutex::new(work), bell: Condvar::new(), idle: Condvar::new() });
        for n in 0..threads {
            let (cache, shared) = (cache.clone(), pool.clone());
            let builder = thread::Builder::new().name(format!("pindown-reg-{n}"));
            if let Err(error) = builder.spawn(move || shared.run(&cache)) {
                pool.close();
                return Err(QueueBuildError::Thread(error));
            }
        }
        Ok(pool)
    }

    /// Returns the job's id.
    pub(super) fn push(&self, job: Job<P>) -> Result<u64, SubmitError> {
        let id = job.id;
        let mut work = lock(&self.work);
        if work.closed {
            drop(work);
            job.refuse();
            return Err(SubmitError::Closed);
        }
        work.jobs.push_back(job);
        drop(work);
        self.bell.notify_one();
        Ok(id)
    }

    /// The pieces of one submission: all or none.
    pub(super) fn push_pieces(&self, pieces: Vec<Job<P>>) -> Result<(), SubmitError> {
        let mut work = lock(&self.work);
        if work.closed {
            drop(work);
            pieces.into_iter().for_each(Job::refuse);
            return Err(SubmitError::Closed);
        }
        work.pieces.extend(pieces);
        drop(work);
        self.bell.notify_all();
        Ok(())
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.work).closed
    }

    pub(super) fn cancel(&self, id: u64) -> bool {
        let removed = lock(&self.work).remove(id);
        let found = !removed.is_empty();
        removed.into_iter().for_each(|job| job.complete(Err(QueueError::Cancelled)));
        found
    }

    fn run(&self, cache: &Cache<P>) {
        crate::sys::block_signals();
        lock(&self.work).threads.push(thread::current().id());
        while let Some(job) = self.next() {
            let finish = Finish(self);
            contained(|| job.run(cache));
            drop(finish);
        }
    }

    fn next(&self) -> Option<Job<P>> {
        let mut work = lock(&self.work);
        loop {
            if let Some(job) = work.pop() {
                work.running += 1;
                return Some(job);
            }
            if work.closed {
                return None;
            }
            work = self.bell.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Does all jobs on this thread.
    pub(super) fn run_here(&self, cache: &Cache<P>) -> usize {
        let mut done = 0;
        loop {
            let Some(job) = lock(&self.work).pop() else { return done };
            job.run(cache);
            done += 1;
        }
    }

    /// Takes no more, completes what has not begun as closed, and waits for what runs; unless one of the
    /// pool's own threads calls it, from within a job that would wait for itself.
    pub(super) fn close(&self) {
        let mut work = lock(&self.work);
        work.closed = true;
        let left = (std::mem::take(&mut work.jobs), std::mem::take(&mut work.pieces));
        let own = work.threads.contains(&thread::current().id());
        drop(work);
        self.bell.notify_all();
        drop(left);
        let mut work = lock(&self.work);
        while work.running > 0 && !own {
            work = self.idle.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
