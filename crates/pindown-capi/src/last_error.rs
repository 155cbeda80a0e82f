//! Why the last call on this thread failed.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use crate::failure::Failure;

#[derive(Default)]
struct Last {
    message: CString,
    errno: i32,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// In a thread (or process) that is ending the place may be gone: then the status alone speaks.
pub(crate) fn set(failure: &Failure) {
    let message = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
    let last = Last { message, errno: failure.errno };
    let _ = LAST.try_with(|place| place.try_borrow_mut().map(|mut place| *place = last));
}

/// Why the last call that failed on this thread did, and what to do about it, in English. Empty if none did.
/// Valid until the next call on this thread that fails; not to be freed. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_last_error() -> *const c_char {
    let message = LAST.try_with(|last| last.try_borrow().map_or(c"".as_ptr(), |last| last.message.as_ptr()));
    message.unwrap_or(c"".as_ptr())
}

/// The errno of the system call behind that failure; 0 if there was none.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_last_errno() -> i32 {
    LAST.try_with(|last| last.try_borrow().map_or(0, |last| last.errno)).unwrap_or(0)
}
