//! Other processes, with and without this one's memory.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use super::{PAGE_BYTES, Span, Via, check, unmap};

/// Forks; the child writes to each page of `span`, or unmaps it, and exits. Waits for it.
pub(crate) fn fork_child(span: Span, unmaps: bool) -> io::Result<()> {
    // SAFETY: the child calls async-signal-safe functions and writes to the span alone.
    let pid = check(unsafe { libc::fork() })?;
    if pid == 0 {
        let failed = if unmaps { unmap(span, Via::Raw).is_err() } else { dirty(span) };
        // SAFETY: ends the child without running exit handlers of the parent's.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    reap(pid as i32)
}

fn dirty(span: Span) -> bool {
    for page in (0..span.len_bytes()).step_by(PAGE_BYTES) {
        span.part(page, PAGE_BYTES).write(&[9]);
    }
    false
}

/// A child that shares this process's memory unmaps `span` and exits. With `vfork`, this thread
/// sleeps until then, as in vfork(2); without, it runs on and then waits.
pub(crate) fn unmap_in_sharing_child(span: Span, vfork: bool) -> io::Result<()> {
    extern "C" fn child(span: *mut libc::c_void) -> i32 {
        // SAFETY: points to the parent's `span`, which lives until the child is reaped.
        let span = unsafe { *span.cast::<Span>() };
        // No libc wrapper: it would write the parent's errno.
        // SAFETY: as [`unmap`]; then the child ends without touching anything of the parent's.
        unsafe {
            let failed = libc::syscall(libc::SYS_munmap, span.base(), span.len_bytes()) != 0;
            libc::_exit(i32::from(failed))
        }
    }
    let mut stack = vec![0_u64; 8192];
    let flags = libc::CLONE_VM | libc::SIGCHLD | if vfork { libc::CLONE_VFORK } else { 0 };
    // SAFETY: the child runs on a stack of its own, which is freed after the child was reaped.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast();
        check(libc::clone(child, top, flags, (&raw const span).cast_mut().cast()))?
    };
    reap(pid as i32)
}

pub(super) fn reap(pid: i32) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: waits for a child of ours; writes the status.
    check(unsafe { libc::waitpid(pid, &raw mut status, 0) })?;
    match status {
        0 => Ok(()),
        _ => Err(io::Error::other(format!("the child ended with status {status:#x}"))),
    }
}

/// Runs this program again with `args`, in a process that shares nothing.
pub(crate) fn run_self(args: &[&str]) -> io::Result<()> {
    let output = Command::new("/proc/self/exe").args(args).stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// `process_vm_writev(2)` of `bytes` into the own span.
pub(crate) fn process_vm_write(span: Span, bytes: &[u8]) -> io::Result<()> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: span.void(), iov_len: bytes.len().min(span.len_bytes()) };
    // SAFETY: reads `bytes` and writes within the span.
    check(unsafe { libc::process_vm_writev(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) }
        as i64)
    .map(drop)
}

/// Writes through `/proc/self/mem`, the way ptrace(2) pokes.
pub(crate) fn poke(span: Span, bytes: &[u8]) -> io::Result<()> {
    let mem = OpenOptions::new().write(true).open("/proc/self/mem")?;
    mem.write_all_at(&bytes[..bytes.len().min(span.len_bytes())], span.base() as u64)
}

/// Ends this process without running destructors or exit handlers.
pub(crate) fn end_now() -> ! {
    // SAFETY: takes an integer and does not return.
    unsafe { libc::_exit(0) }
}

/// How often the kernel took the CPU from this thread (getrusage(2), `ru_nivcsw`).
pub(crate) fn preemptions() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure; where it fails, zeroes are valid too.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_nivcsw
    }
}
