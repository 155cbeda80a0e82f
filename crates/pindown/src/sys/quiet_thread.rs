//! Threads that nothing but their own work may run on.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread with all signals blocked, so that no handler of the application (which may
/// allocate and free) runs on it.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // SAFETY: sigset_t is plain data, filled by sigfillset before use; the calling thread's mask
    // is put back after the new thread has inherited the full one.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let thread = Builder::new().name(name.into()).stack_size(256 << 10).spawn(body);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        thread
    }
}
