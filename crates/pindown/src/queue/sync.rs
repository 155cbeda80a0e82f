//! The one door to locks and threads: std, or shuttle's models of them (`--cfg shuttle`).

#[cfg(shuttle)]
pub(super) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, atomic::AtomicUsize},
    thread,
};
#[cfg(not(shuttle))]
pub(super) use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic::AtomicUsize},
    thread,
};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

/// Locks, and goes on after a panic elsewhere: what these locks protect is whole after each step.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the application's code, whose panic must not reach the queue's. `None`: it panicked.
pub(super) fn contained<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}
