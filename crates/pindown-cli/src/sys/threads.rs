//! The other threads of this process.

use std::fs;
use std::time::Duration;

/// Waits until every other thread sleeps, for a second at most. A thread that is just starting maps its
/// signal stack, and might do so in the hole that this one is about to make.
pub(crate) fn wait_until_others_sleep() {
    for _ in 0..1000 {
        if others_sleep().unwrap_or(true) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn others_sleep() -> std::io::Result<bool> {
    // SAFETY: reads a number; cannot fail.
    let me = unsafe { libc::gettid() }.to_string();
    for task in fs::read_dir("/proc/self/task")? {
        let name = task?.file_name();
        if name.to_str() != Some(&me) && is_running(&name.to_string_lossy()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// By its state, after the name in parentheses (proc_pid_stat(5)). A thread that ended does not run.
fn is_running(tid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('R'))
}
