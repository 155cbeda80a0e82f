//! The dynamic linker's and libc's functions that the preloaded libraries use.

use std::ffi::{CStr, c_void};
use std::io;
use std::ptr::NonNull;

/// The address of `symbol` in the library `soname`, if that is loaded. Not the caller's own definition of
/// it, and also where the library came by dlopen(3) with `RTLD_LOCAL`, where `RTLD_NEXT` finds nothing.
/// The library stays loaded.
pub fn symbol_of(soname: &CStr, symbol: &CStr) -> Option<NonNull<c_void>> {
    symbol_with(soname, |library| {
        // SAFETY: an open handle and a terminated name.
        unsafe { libc::dlsym(library, symbol.as_ptr()) }
    })
}

/// As [`symbol_of`], of a version.
pub fn versioned_symbol_of(soname: &CStr, symbol: &CStr, version: &CStr) -> Option<NonNull<c_void>> {
    symbol_with(soname, |library| {
        // SAFETY: an open handle and terminated names.
        unsafe { libc::dlvsym(library, symbol.as_ptr(), version.as_ptr()) }
    })
}

fn symbol_with(soname: &CStr, find: impl FnOnce(*mut c_void) -> *mut c_void) -> Option<NonNull<c_void>> {
    let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: a terminated name; with NOLOAD no initialiser runs. The handle is never closed.
    let library = unsafe { libc::dlopen(soname.as_ptr(), flags) };
    NonNull::new(library).and_then(|library| NonNull::new(find(library.as_ptr())))
}

/// The address of `symbol` behind the library that asks, in the order of the program's libraries.
pub fn next_symbol(symbol: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: a terminated name.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_NEXT, symbol.as_ptr()) })
}

/// Has `function` called by `exit(3)` or the return from `main`.
///
/// # Errors
///
/// ENOMEM.
pub fn at_exit(function: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the libraries are linked with `-z nodelete`, so the function stays where it is.
    match unsafe { libc::atexit(function) } {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
    }
}

/// Sets `errno` of the calling thread.
pub fn set_errno(errno: i32) {
    // SAFETY: the address of the thread's own errno, always valid.
    unsafe { *libc::__errno_location() = errno };
}

/// `errno` of the calling thread.
pub fn errno() -> i32 {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// `poll(2)` for reading, up to `timeout`.
pub fn wait_readable(fd: std::os::fd::BorrowedFd<'_>, timeout: std::time::Duration) {
    use std::os::fd::AsRawFd;
    let mut one = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one live pollfd. An early return (a signal) is as good as a change.
    unsafe { libc::poll(&raw mut one, 1, timeout_ms) };
}

/// Blocks all signals in the calling thread, so that no handler of the program's runs on it.
pub fn block_signals() {
    // SAFETY: `set` is a live, fully initialised set; changing this thread's own mask is harmless.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Writes a line to standard error in one piece, so that processes that share it do not cut into each other.
pub fn tell(line: &str) {
    use std::io::Write;
    // Where standard error is closed there is nobody to tell.
    _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
