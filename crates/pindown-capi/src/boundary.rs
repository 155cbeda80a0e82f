//! Where Rust ends: no panic passes, failures become numbers.

use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::failure::{Failure, Result};
use crate::last_error;
use crate::status::pindown_status::{self, *};

/// Runs the body of an exported function.
#[inline(always)]
pub(crate) fn enter(body: impl FnOnce() -> Result<pindown_status>) -> pindown_status {
    // Unwind-safe: what a panic interrupts are the library's own objects, which are built to survive
    // panics of providers (no lock is held across them, locks are taken over when poisoned).
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => failed(&failure),
        Err(_) => panicked(),
    }
}

/// The same for a body that has nothing but success to report.
#[inline(always)]
pub(crate) fn enter_unit(body: impl FnOnce() -> Result<()>) -> pindown_status {
    enter(|| body().map(|()| PINDOWN_OK))
}

/// For functions that return a value, and `fallback` when they cannot.
#[inline(always)]
pub(crate) fn enter_or<T>(fallback: T, body: impl FnOnce() -> Result<T>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failed(&failure),
        Err(_) => panicked(),
    };
    fallback
}

#[cold]
fn failed(failure: &Failure) -> pindown_status {
    last_error::set(failure);
    failure.status
}

#[cold]
fn panicked() -> pindown_status {
    failed(&Failure::new(PINDOWN_E_PANIC, "libpindown panicked, stderr says where: please report it"))
}

/// Where a result goes; NULL is refused before anything is done.
pub(crate) fn place<'a, T>(
    out: Option<&'a mut MaybeUninit<T>>,
    what: &str,
) -> Result<&'a mut MaybeUninit<T>> {
    out.ok_or_else(|| Failure::null(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn a_panic_becomes_a_status_with_words() {
        std::panic::set_hook(Box::new(|_| ()));
        let status = enter(|| panic!("inside"));
        let value = enter_or(7, || panic!("inside"));
        let _ = std::panic::take_hook();
        assert_eq!((status, value), (PINDOWN_E_PANIC, 7));
        // SAFETY: the pointer is to this thread's message, which no call replaces meanwhile.
        let text = unsafe { CStr::from_ptr(last_error::pindown_last_error()) };
        assert!(text.to_str().unwrap().contains("panicked"));
    }

    #[test]
    fn a_failure_leaves_its_words_and_errno() {
        let failure = || Failure::of(PINDOWN_E_IO, &std::io::Error::from_raw_os_error(12));
        assert_eq!(enter_unit(|| Err(failure())), PINDOWN_E_IO);
        assert_eq!(last_error::pindown_last_errno(), 12);
        assert_eq!(enter_unit(|| Ok(())), PINDOWN_OK);
        assert_eq!(last_error::pindown_last_errno(), 12, "success leaves the last failure alone");
    }
}
