//! `pindown_status`: numbers that never change, and what each means.

use std::ffi::{CStr, c_char};

/// What a function came to. Numbers never change; new ones may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum pindown_status {
    /// Done.
    PINDOWN_OK = 0,
    /// Submitted; a completion will come.
    PINDOWN_PENDING = 1,
    /// Nothing there: no registration serves the range (pindown_lookup), no completion waits, no such ticket or
    /// cookie. Not an error, and `pindown_last_error` is left alone.
    PINDOWN_NOT_FOUND = 2,
    /// NULL where something is needed, an unknown number, or a structure that is too short.
    PINDOWN_E_INVALID = -1,
    /// The handle is of another kind, or was freed.
    PINDOWN_E_HANDLE = -2,
    /// The registration is not held: it was put already, or never acquired.
    PINDOWN_E_NOT_HELD = -3,
    /// No range of this address space: zero length, wrap-around, or beyond the end.
    PINDOWN_E_RANGE = -4,
    /// A limit of the kernel or device (RLIMIT_MEMLOCK, slots, memory).
    PINDOWN_E_LIMIT = -5,
    /// The cache's budget has no room, and what fills it is held.
    PINDOWN_E_BUDGET = -6,
    /// Longer than one registration can be.
    PINDOWN_E_TOO_LONG = -7,
    /// The device or kernel does not register this memory.
    PINDOWN_E_MEMORY = -8,
    /// A passing fault.
    PINDOWN_E_BUSY = -9,
    /// The provider belongs to another thread.
    PINDOWN_E_WRONG_THREAD = -10,
    /// The device is gone.
    PINDOWN_E_DEVICE_GONE = -11,
    /// A system call failed; `pindown_last_errno` has its number.
    PINDOWN_E_IO = -12,
    /// The library or a callback panicked. The objects involved stay usable.
    PINDOWN_E_PANIC = -13,
    /// The object belongs to the parent of this process.
    PINDOWN_E_FORKED = -14,
    /// The cache or queue is closed.
    PINDOWN_E_CLOSED = -15,
    /// Registrations are still held.
    PINDOWN_E_HELD = -16,
    /// The provider does not let go of registrations; they are retried.
    PINDOWN_E_DEREGISTER = -17,
    /// The queue is full.
    PINDOWN_E_QUEUE_FULL = -18,
    /// The submission was cancelled.
    PINDOWN_E_CANCELLED = -19,
    /// The monitor does not start here.
    PINDOWN_E_MONITOR = -20,
    /// The device or library cannot be opened, or lacks what was asked for.
    PINDOWN_E_DEVICE = -21,
    /// The range cannot be watched: not every change of it would be seen.
    PINDOWN_E_NOT_COVERED = -22,
    /// The cookie is in use.
    PINDOWN_E_COOKIE = -23,
    /// Nothing is mapped in part of the range.
    PINDOWN_E_HOLE = -24,
    /// More segments than one transfer may name.
    PINDOWN_E_SEGMENTS = -25,
    /// Not all pages could be made ready.
    PINDOWN_E_INCOMPLETE = -26,
    /// Anything else.
    PINDOWN_E_OTHER = -27,
}

use pindown_status::*;

/// Numbers with their name and what to do, for `pindown_strerror`.
const TABLE: &[(pindown_status, &CStr)] = &[
    (PINDOWN_OK, c"done"),
    (PINDOWN_PENDING, c"submitted: a completion will come"),
    (PINDOWN_NOT_FOUND, c"nothing there"),
    (PINDOWN_E_INVALID, c"an argument is NULL, unknown or too short: see pindown_last_error"),
    (
        PINDOWN_E_HANDLE,
        c"the handle is of another kind or was freed: pass the one that its own _new returned",
    ),
    (PINDOWN_E_NOT_HELD, c"the registration is not held: it was put already, or never acquired"),
    (PINDOWN_E_RANGE, c"no range of this address space: zero length, wrap-around, or beyond its end"),
    (PINDOWN_E_LIMIT, c"a limit of the kernel or device: raise it (ulimit -l), or hold fewer registrations"),
    (PINDOWN_E_BUDGET, c"the budget is full of held registrations: put some, or raise max_bytes/max_regions"),
    (PINDOWN_E_TOO_LONG, c"longer than one registration can be: split it, or use pindown_everything"),
    (
        PINDOWN_E_MEMORY,
        c"the device or kernel does not register this memory: copy through memory that it does",
    ),
    (PINDOWN_E_BUSY, c"a passing fault: try again"),
    (PINDOWN_E_WRONG_THREAD, c"the provider belongs to another thread: call from the one that made it"),
    (PINDOWN_E_DEVICE_GONE, c"the device is gone: open it again"),
    (PINDOWN_E_IO, c"a system call failed: see pindown_last_errno"),
    (PINDOWN_E_PANIC, c"the library or a callback panicked: report it, with what stderr says"),
    (PINDOWN_E_FORKED, c"the object is the parent's: make a new one after fork"),
    (PINDOWN_E_CLOSED, c"the cache or queue is closed"),
    (PINDOWN_E_HELD, c"registrations are still held: put them, then try again"),
    (PINDOWN_E_DEREGISTER, c"the provider does not let go of registrations: they are being retried"),
    (PINDOWN_E_QUEUE_FULL, c"the queue is full: poll completions, then submit again"),
    (PINDOWN_E_CANCELLED, c"cancelled before it began"),
    (PINDOWN_E_MONITOR, c"the monitor does not start here: see pindown_last_error and `pindown doctor`"),
    (PINDOWN_E_DEVICE, c"the device cannot be opened or lacks what was asked for: see `pindown doctor`"),
    (
        PINDOWN_E_NOT_COVERED,
        c"not every change of the range would be seen: register and deregister at each use",
    ),
    (PINDOWN_E_COOKIE, c"the cookie is in use: unregister it first"),
    (PINDOWN_E_HOLE, c"nothing is mapped in part of the range"),
    (PINDOWN_E_SEGMENTS, c"more segments than one transfer may name: transfer less at a time"),
    (PINDOWN_E_INCOMPLETE, c"not all pages could be made ready: see pindown_last_error"),
    (PINDOWN_E_OTHER, c"an error that this version has no number for: see pindown_last_error"),
];

/// What `status` means and what to do, in English. Never NULL, never to be freed. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_strerror(status: i32) -> *const c_char {
    let row = TABLE.iter().find(|(known, _)| *known as i32 == status);
    row.map_or(c"no such status: the program and libpindown differ in version", |(_, text)| text).as_ptr()
}

/// This library's version, "major.minor.patch". Never to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_text_of_its_own() {
        let numbers: Vec<i32> = TABLE.iter().map(|(status, _)| *status as i32).collect();
        assert_eq!(numbers[..3], [0, 1, 2]);
        assert_eq!(numbers[3..], (-27..=-1).rev().collect::<Vec<_>>()[..], "no gap, so none is forgotten");
        let texts: std::collections::HashSet<_> = TABLE.iter().map(|(_, text)| text).collect();
        assert_eq!(texts.len(), TABLE.len());
    }
}
