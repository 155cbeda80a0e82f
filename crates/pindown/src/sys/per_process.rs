//! [`PerProcess`]: a global that a forked child gets anew.

use std::sync::atomic::{AtomicPtr, Ordering};

use super::process::Process;

/// A lazily made global of one process.
///
/// After a fork the parent's value may have been copied while one of its locks was held by a thread
/// that the child does not have. So the child leaves it alone (it is leaked) and makes its own.
pub(crate) struct PerProcess<T> {
    current: AtomicPtr<Owned<T>>,
}

struct Owned<T> {
    process: Process,
    value: T,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { current: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// This process's value, made by `make` if there is none yet.
    pub(crate) fn get(&'static self, make: impl Fn() -> T) -> &'static T {
        let process = Process::current();
        loop {
            let seen = self.current.load(Ordering::Acquire);
            // SAFETY: null, or a box that was leaked below and is never freed once stored.
            if let Some(owned) = unsafe { seen.as_ref() }.filter(|o| o.process == process) {
                return &owned.value;
            }
            let fresh = Box::into_raw(Box::new(Owned { process, value: make() }));
            if self.current.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: the exchange failed, so nobody else ever saw this box.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }
}
