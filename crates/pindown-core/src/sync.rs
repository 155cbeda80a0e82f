//! The one door to atomics and locks: std, or loom's models of them, or locks that ThreadSanitizer follows.

#[cfg(tsan)]
mod tsan;

#[cfg(tsan)]
pub(crate) use tsan::{Condvar, Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(any(loom, tsan)))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

pub(crate) use std::sync::Arc;

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;
#[cfg(loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(not(loom))]
pub(crate) use std::thread::yield_now;

/// [`std::cell::UnsafeCell`] with loom's interface, so that loom sees races on it.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// The full fences that the hold protocols rest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FenceAt {
    /// Between storing a hazard slot and loading the entry again: a light fence, but in the models.
    #[cfg(loom)]
    Slot,
    /// Between counting a hold and loading the entry again.
    Count,
    /// Between unlinking a region and looking for its holds.
    Retire,
}

#[inline(always)]
pub(crate) fn full_fence(at: FenceAt) {
    #[cfg(loom)]
    if crate::loom_models::is_dropped(at) {
        return;
    }
    let _ = at;
    fence(Ordering::SeqCst);
}

/// The reader's half of the asymmetric fence: it only keeps the compiler from reordering; the
/// other half, [`Host::asymmetric_fence`](crate::Host::asymmetric_fence), makes it a full fence
/// when it matters. loom has no membarrier, so both halves are full fences there.
#[inline(always)]
pub(crate) fn light_fence() {
    #[cfg(loom)]
    full_fence(FenceAt::Slot);
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Locks, and goes on after a panic elsewhere: what the locks here protect is changed in steps
/// that each leave it whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
