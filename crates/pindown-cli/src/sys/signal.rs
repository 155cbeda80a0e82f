//! Time-outs of cells, and giving huge pages back on Ctrl-C.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// Ends this process by SIGALRM in `seconds`, wherever it hangs.
pub(crate) fn die_in(seconds: u32) {
    // SAFETY: takes an integer; the default action of SIGALRM ends the process.
    unsafe { libc::alarm(seconds) };
}

/// Waits until `file` is readable; `false` when `timeout_ms` passed first.
pub(crate) fn wait_readable(file: &impl AsRawFd, timeout_ms: i32) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: one pollfd that lives across the call.
        match super::check(unsafe { libc::poll(&raw mut poll, 1, timeout_ms) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            ready => return Ok(ready? > 0),
        }
    }
}

static RESTORE_FD: AtomicI32 = AtomicI32::new(-1);
static RESTORE_VALUE: AtomicUsize = AtomicUsize::new(0);

/// From now on SIGINT, SIGTERM and SIGHUP write `value` to `file` before they end the process.
pub(crate) fn restore_on_signal(file: File, value: usize) {
    RESTORE_VALUE.store(value, Ordering::Relaxed);
    RESTORE_FD.store(file.into_raw_fd(), Ordering::Release);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler calls async-signal-safe functions alone.
        unsafe { libc::signal(signal, restore as extern "C" fn(i32) as libc::sighandler_t) };
    }
}

extern "C" fn restore(signal: i32) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut value = RESTORE_VALUE.load(Ordering::Relaxed);
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    let text = &digits[at..];
    // SAFETY: write, signal and raise are async-signal-safe; the buffer lives across the call.
    unsafe {
        libc::write(RESTORE_FD.load(Ordering::Acquire), text.as_ptr().cast(), text.len());
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}
