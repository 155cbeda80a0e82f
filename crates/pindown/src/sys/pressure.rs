//! Memory pressure: a PSI trigger (`Documentation/accounting/psi.rst`, Linux 5.2; unprivileged with
//! a window that is a multiple of 2 s since 6.5).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// Told when, within 2 s, some task waited 200 ms for memory.
const TRIGGER: &[u8] = b"some 200000 2000000\0";

/// Remembers that memory was short, until asked.
#[derive(Debug)]
pub(crate) struct Pressure {
    trigger: File,
}

impl Pressure {
    /// # Errors
    ///
    /// ENOENT without PSI, EPERM or EINVAL where an unprivileged trigger is not allowed.
    pub(crate) fn watch() -> io::Result<Self> {
        let mut trigger = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/proc/pressure/memory")?;
        trigger.write_all(TRIGGER)?;
        Ok(Self { trigger })
    }

    /// Whether memory was short since the last call.
    pub(crate) fn was_short(&self) -> bool {
        let mut polled = libc::pollfd { fd: self.trigger.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
        // SAFETY: one live pollfd, and a count of one; does not wait.
        let ready = unsafe { libc::poll(&mut polled, 1, 0) };
        ready == 1 && polled.revents & libc::POLLPRI != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_trigger_is_quiet_or_refused_with_a_reason() {
        match Pressure::watch() {
            Ok(pressure) => {
                pressure.was_short();
                assert!(!pressure.was_short(), "an event is told once a window");
            }
            Err(error) => println!("skipped: no PSI trigger here: {error}"),
        }
    }
}
