//! Forked children and the parent beside them.

use std::time::{Duration, Instant};

use super::*;
use crate::sys::test_memory::{Memory, touch};

/// Forks; the child runs `in_child` (async-signal-safe, for other threads' locks may be held) and
/// exits with 0 if it returns true.
fn fork(in_child: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child calls only what `in_child` promises, then _exit.
    match unsafe { libc::fork() } {
        0 => {
            let good = in_child();
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(i32::from(!good)) }
        }
        child => child,
    }
}

fn exit_code(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: waits for the test's own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 }
}

#[test]
fn a_child_inherits_nothing() {
    let Some(rig) = Rig::new() else { return };
    let memory = Memory::anonymous(4);
    touch(memory.pages(0, 4), 1);
    assert_eq!(wait_out_grace(&rig, memory.pages(0, 4)), Subscription::Events);
    let fd = rig.monitor.descriptor.get().unwrap().raw();
    assert!(fd >= 0);
    let child = fork(|| {
        let subscribed = rig.monitor.subscribe(memory.pages(0, 4), Access::READ_WRITE);
        let forked = matches!(subscribed, Err(MonitorError::Forked));
        // SAFETY: only asks whether the number is open.
        let closed = unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1;
        touch(memory.pages(0, 4), 2);
        std::mem::forget(memory); // a child's munmap must not wait for anyone; _exit does it
        forked && closed && !rig.monitor.settle()
    });
    assert_eq!(exit_code(child), 0);
    // The parent goes on.
    assert!(rig.monitor.settle());
}

#[test]
fn a_child_unmaps_without_waiting() {
    let Some(rig) = Rig::new() else { return };
    let memory = Memory::anonymous(4);
    touch(memory.pages(0, 4), 1);
    assert_eq!(wait_out_grace(&rig, memory.pages(0, 4)), Subscription::Events);
    let child = fork(|| {
        // SAFETY: a child that hangs is killed by the alarm and fails the test.
        unsafe { libc::alarm(5) };
        crate::sys::test_memory::munmap(memory.pages(0, 4));
        true
    });
    assert_eq!(exit_code(child), 0);
}

#[test]
fn a_living_child_does_not_hang_the_parent_after_stop() {
    let Some(rig) = Rig::new() else { return };
    let memory = Memory::anonymous(4);
    touch(memory.pages(0, 4), 1);
    assert_eq!(wait_out_grace(&rig, memory.pages(0, 4)), Subscription::Events);
    // By the raw call, which runs no atfork handler: the child keeps the descriptor.
    // SAFETY: the child only sleeps and exits.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as i32;
    if child == 0 {
        // SAFETY: async-signal-safe calls only.
        unsafe {
            libc::alarm(30);
            libc::pause();
            libc::_exit(0);
        }
    }
    let start = Instant::now();
    drop(rig);
    drop(memory);
    assert!(start.elapsed() < Duration::from_secs(5));
    // SAFETY: the test's own child.
    unsafe { libc::kill(child, libc::SIGKILL) };
    exit_code(child);
}
