//! std's locks as ThreadSanitizer can follow them (`--cfg tsan`).
//!
//! The standard library is delivered compiled without the sanitizer, so what orders memory inside its locks
//! is not seen, and each use of what they protect is reported as a race. parking_lot is compiled with us.

use std::sync::LockResult;

/// As `std::sync::Mutex`, but for poisoning, which pindown ignores.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

pub(crate) type MutexGuard<'a, T> = parking_lot::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        Ok(self.0.lock())
    }

    pub(crate) fn try_lock(&self) -> Result<MutexGuard<'_, T>, ()> {
        self.0.try_lock().ok_or(())
    }
}

/// As `std::sync::Condvar`.
#[derive(Debug, Default)]
pub(crate) struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    pub(crate) fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait(&mut guard);
        Ok(guard)
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
