//! Children of a test: forked, or the test's own binary started again.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const MARK: &str = "PINDOWN_TEST_ROLE";

/// The role in which this binary was started, if a test started it: see [`again`].
pub(crate) fn role() -> Option<String> {
    std::env::var(MARK).ok()
}

/// This binary again, to run the test `name` alone, where [`role`] says `role`.
pub(crate) fn again(name: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", name, "--nocapture", "--test-threads", "1"]);
    command.env(MARK, role).stdin(Stdio::null());
    command
}

/// How it ended; `None`, and it is killed, if it did not within `time`.
pub(crate) fn ended_within(child: &mut Child, time: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < time {
        if let Some(status) = child.try_wait().expect("our child") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().expect("our child");
    child.wait().expect("our child");
    None
}

/// Forks; the child runs `body` and ends with 0, or 1 if it panicked, without any exit handler.
pub(crate) fn fork(body: impl FnOnce()) -> i32 {
    // SAFETY: what the child may do then is what these tests are about; glibc's allocator works in it.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        let fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!fine)) }
    }
    child
}

/// How a forked child ended; `None`, and it is killed, if it did not within `time`.
pub(crate) fn reap_within(child: i32, time: Duration) -> Option<ExitStatus> {
    let (start, mut status) = (Instant::now(), 0);
    while start.elapsed() < time {
        // SAFETY: a live int.
        if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child {
            return Some(ExitStatus::from_raw(status));
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    // SAFETY: our own child, which hangs.
    unsafe { libc::kill(child, libc::SIGKILL) };
    None
}
