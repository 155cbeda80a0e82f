//! What is done when the process ends.

use std::io;

/// Has `function` called by `exit(3)` or the return from `main`; not by `_exit(2)` or a signal.
///
/// # Errors
///
/// ENOMEM.
pub(crate) fn call(function: extern "C" fn()) -> io::Result<()> {
    // SAFETY: a plain function pointer, valid as long as this library is loaded; a library that
    // registers handlers with atexit(3) is told of its unloading by running them first.
    match unsafe { libc::atexit(function) } {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
    }
}
