//! Time-outs of cells, and giving huge pages back on Ctrl-C.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

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

static COUNT_FD: AtomicI32 = AtomicI32::new(-1);
static ADDED: AtomicUsize = AtomicUsize::new(0);

/// From now on SIGINT, SIGTERM and SIGHUP take `added` off the number in `file` before they end the process.
pub(crate) fn take_off_on_signal(file: File, added: usize) {
    ADDED.store(added, Ordering::Relaxed);
    COUNT_FD.store(file.into_raw_fd(), Ordering::Release);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler calls async-signal-safe functions alone.
        unsafe { libc::signal(signal, on_signal as extern "C" fn(i32) as libc::sighandler_t) };
    }
}

extern "C" fn on_signal(signal: i32) {
    take_off();
    // SAFETY: both are async-signal-safe; the second ends the process, by the same signal.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Takes off what was added, once, whoever comes first. Async-signal-safe: it neither allocates nor locks.
pub(crate) fn take_off() -> bool {
    let (fd, added) = (COUNT_FD.load(Ordering::Acquire), ADDED.swap(0, Ordering::AcqRel));
    if added == 0 {
        return true;
    }
    let mut digits = [0_u8; 20];
    // SAFETY: the buffer is as long as said and lives across the call.
    let read = unsafe { libc::pread(fd, digits.as_mut_ptr().cast(), digits.len(), 0) };
    let now = digits.iter().take(read.max(0) as usize).take_while(|d| d.is_ascii_digit());
    let now = now.fold(0_usize, |n, d| n.wrapping_mul(10).wrapping_add(usize::from(d - b'0')));
    let (text, len) = decimal(now.saturating_sub(added));
    // SAFETY: as above.
    let written = unsafe { libc::pwrite(fd, text.as_ptr().cast(), len, 0) };
    read > 0 && written == len as isize
}

/// The digits of `n`, and how many there are.
fn decimal(mut n: usize) -> ([u8; 20], usize) {
    let (mut digits, mut len) = ([0_u8; 20], 0);
    while len == 0 || n > 0 {
        digits[len] = b'0' + (n % 10) as u8;
        n /= 10;
        len += 1;
    }
    digits[..len].reverse();
    (digits, len)
}

static END_ASKED: AtomicBool = AtomicBool::new(false);

/// From now on SIGTERM and SIGHUP only set what [`end_asked`] tells.
pub(crate) fn note_end_signals() {
    extern "C" fn note(_: i32) {
        END_ASKED.store(true, Ordering::Release);
    }
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler stores an atomic alone.
        unsafe { libc::signal(signal, note as extern "C" fn(i32) as libc::sighandler_t) };
    }
}

/// Whether a signal asked this process to end.
pub(crate) fn end_asked() -> bool {
    END_ASKED.load(Ordering::Acquire)
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn digits_are_in_order() {
        for n in [0, 7, 10, 1024, usize::MAX] {
            let (digits, len) = decimal(n);
            assert_eq!(std::str::from_utf8(&digits[..len]), Ok(n.to_string().as_str()));
        }
    }
}
