//! [`Pool`]: the threads that register.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pindown_core::Provider;

use super::job::Job;
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
    running: usize,
    closed: bool,
}

impl<P: Provider> Pool<P> {
    /// Starts `threads` threads; they end after `close`.
    pub(super) fn start(cache: &Cache<P>, threads: usize) -> Result<Arc<Self>, QueueBuildError> {
        let work = Work { jobs: VecDeque::new(), running: 0, closed: false };
        let pool = Arc::new(Self { work: Mutex::new(work), bell: Condvar::new(), idle: Condvar::new() });
        for n in 0..threads {
            let (cache, shared) = (cache.clone(), pool.clone());
            let builder = std::thread::Builder::new().name(format!("pindown-reg-{n}"));
            if let Err(error) = builder.spawn(move || shared.run(&cache)) {
                pool.close();
                return Err(QueueBuildError::Thread(error));
            }
        }
        Ok(pool)
    }

    fn work(&self) -> MutexGuard<'_, Work<P>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the job's id.
    pub(super) fn push(&self, job: Job<P>) -> Result<u64, SubmitError> {
        let id = job.id;
        let mut work = self.work();
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

    pub(super) fn cancel(&self, id: u64) -> bool {
        let job = {
            let mut work = self.work();
            let at = work.jobs.iter().position(|j| j.id == id);
            at.and_then(|at| work.jobs.remove(at))
        };
        let found = job.is_some();
        if let Some(job) = job {
            job.complete(Err(QueueError::Cancelled));
        }
        found
    }

    fn run(&self, cache: &Cache<P>) {
        crate::sys::block_signals();
        while let Some(job) = self.next() {
            job.run(cache);
            self.finished();
        }
    }

    fn next(&self) -> Option<Job<P>> {
        let mut work = self.work();
        loop {
            if let Some(job) = work.jobs.pop_front() {
                work.running += 1;
                return Some(job);
            }
            if work.closed {
                return None;
            }
            work = self.bell.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn finished(&self) {
        self.work().running -= 1;
        self.idle.notify_all();
    }

    /// Does all jobs on this thread.
    pub(super) fn run_here(&self, cache: &Cache<P>) -> usize {
        let mut done = 0;
        loop {
            let Some(job) = self.work().jobs.pop_front() else { return done };
            job.run(cache);
            done += 1;
        }
    }

    /// Takes no more, completes what has not begun as closed, and waits for what runs (unless
    /// called by a job itself).
    pub(super) fn close(&self) {
        let left = {
            let mut work = self.work();
            work.closed = true;
            std::mem::take(&mut work.jobs)
        };
        drop(left);
        self.bell.notify_all();
        let mut work = self.work();
        while work.running > 0 && !on_pool_thread() {
            work = self.idle.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn on_pool_thread() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with("pindown-reg-"))
}
