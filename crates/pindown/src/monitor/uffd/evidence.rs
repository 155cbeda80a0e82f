//! Evidence that a thread has left every call that discards pages.

use crate::sys::threads::{self, Wchan, Where};

use super::grace::GraceSet;

/// What is asked of the system; faked in tests.
pub(super) trait Threads {
    /// Every thread of the process; `None` when that cannot be told.
    fn list(&self) -> Option<Vec<u32>>;
    /// A thread's time in user mode; `None`: it exited.
    fn user_ns(&self, tid: u32) -> Option<u64>;
    /// Where a thread is.
    fn location(&self, tid: u32) -> Where;
    /// The calling thread.
    fn me(&self) -> u32;
}

/// The threads of this process.
#[derive(Debug)]
pub(super) struct Live;

impl Threads for Live {
    fn list(&self) -> Option<Vec<u32>> {
        threads::list()
    }
    fn user_ns(&self, tid: u32) -> Option<u64> {
        threads::user_ns(tid)
    }
    fn location(&self, tid: u32) -> Where {
        threads::location(tid)
    }
    fn me(&self) -> u32 {
        threads::gettid()
    }
}

/// The threads that have not been seen outside a discarding call since the events up to `upto`.
#[derive(Debug)]
struct Snapshot {
    upto: u64,
    /// Thread and its user time at the snapshot.
    waiting: Vec<(u32, u64)>,
}

impl Snapshot {
    fn take(set: &GraceSet, threads: &impl Threads) -> Option<Self> {
        let upto = set.last(); // before the list: see the module's argument
        let alive = threads.list()?;
        let waiting = alive.into_iter().filter_map(|tid| Some((tid, threads.user_ns(tid)?))).collect();
        Some(Self { upto, waiting })
    }
}

/// Moves grace periods on. One thread at a time.
#[derive(Debug, Default)]
pub(super) struct GracePeriods {
    current: Option<Snapshot>,
}

impl GracePeriods {
    /// Looks at the threads once. Whether events are still waiting.
    pub(super) fn advance(&mut self, set: &GraceSet, threads: &impl Threads) -> bool {
        if self.current.is_none() && set.is_pending() {
            self.current = Snapshot::take(set, threads);
        }
        if let Some(snapshot) = &mut self.current {
            snapshot.waiting.retain(|&(tid, user_ns)| !was_outside(threads, tid, user_ns));
            if snapshot.waiting.is_empty() {
                set.clear(snapshot.upto);
                self.current = None;
            }
        }
        set.is_pending()
    }
}

/// Whether the thread has been outside every discarding call since its user time was `user_ns`.
/// `false` means "not known".
fn was_outside(threads: &impl Threads, tid: u32, user_ns: u64) -> bool {
    if tid == threads.me() || threads.user_ns(tid) != Some(user_ns) {
        // We are in user mode; it has been since; or it is gone (or its id is another's).
        return true;
    }
    match threads.location(tid) {
        Where::Gone | Where::Fault | Where::Worker(Wchan::Idle) => true,
        Where::Call(number) => !may_discard(number),
        Where::Running | Where::Worker(Wchan::Other) | Where::Unknown => false,
    }
}

/// Whether a thread that shows up in this call may be discarding. io_uring's MADVISE does not run
/// in `io_uring_enter` but in a worker (`REQ_F_FORCE_ASYNC`, `io_uring/advise.c`).
fn may_discard(number: i64) -> bool {
    const X32: i64 = 0x4000_0000;
    const I386_MADVISE: i64 = 219; // by int 0x80; 440 is process_madvise everywhere
    let number = number & !X32;
    number == libc::SYS_madvise
        || number == libc::SYS_process_madvise
        || (cfg!(target_arch = "x86_64") && number == I386_MADVISE)
}

#[cfg(test)]
#[path = "evidence_tests.rs"]
mod tests;
