//! A terminal that is drawn on, and put right again whatever ends the program.

use std::io::{self, Write};
use std::sync::Mutex;
use std::time::Duration;

/// Alternate screen, no cursor, no line wrap; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// What the terminal was, for the signal handler as well.
static BEFORE: Mutex<Option<libc::termios>> = Mutex::new(None);

/// Keys arrive one by one and unseen until this is dropped.
#[derive(Debug)]
pub(crate) struct Screen(());

impl Screen {
    pub(crate) fn enter() -> io::Result<Self> {
        // SAFETY: all bytes zero is a termios; the call fills it.
        let mut mode: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: fills a live termios.
        super::check(unsafe { libc::tcgetattr(libc::STDIN_FILENO, &raw mut mode) })?;
        *BEFORE.lock().unwrap_or_else(|e| e.into_inner()) = Some(mode);
        mode.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ISIG);
        (mode.c_cc[libc::VMIN], mode.c_cc[libc::VTIME]) = (0, 0);
        // SAFETY: reads a live termios.
        super::check(unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSAFLUSH, &raw const mode) })?;
        let screen = Self(());
        super::note_end_signals();
        let mut out = io::stdout();
        out.write_all(ENTER.as_bytes())?;
        out.flush()?;
        Ok(screen)
    }

    /// A key, or `None` after `wait` without one (or earlier, when the window changed its size).
    pub(crate) fn key(&self, wait: Duration) -> Option<u8> {
        let mut poll = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that lives across the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, wait.as_millis().min(60_000) as i32) };
        if ready <= 0 {
            return None;
        }
        let mut key = 0_u8;
        // SAFETY: one byte, which lives across the call.
        let read = unsafe { libc::read(libc::STDIN_FILENO, (&raw mut key).cast(), 1) };
        // The terminal is gone: as if the user had asked to quit.
        Some(if read == 1 { key } else { b'q' })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = io::stdout();
        _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
        if let Some(mode) = BEFORE.lock().unwrap_or_else(|e| e.into_inner()).take() {
            // SAFETY: reads a live termios.
            unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSAFLUSH, &raw const mode) };
        }
    }
}

/// Columns and rows of the terminal at standard output; 80 by 24 where it does not say.
pub(crate) fn window_size() -> (usize, usize) {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: fills a live winsize.
    let rc = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    match (rc, size.ws_col, size.ws_row) {
        (0, columns @ 1.., rows @ 1..) => (columns.into(), rows.into()),
        _ => (80, 24),
    }
}
