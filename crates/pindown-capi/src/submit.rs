//! What can be submitted to a `pindown_queue`.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use pindown::queue::{Progress, Submitted, Ticket};

use crate::access::access;
use crate::boundary::{enter, enter_unit, place};
use crate::cache::{range, tell};
use crate::failure::Failure;
use crate::handle::{get, give};
use crate::queue::pindown_queue;
use crate::registration::pindown_registration;
use crate::segments::pindown_segments;
use crate::status::pindown_status::{self, *};

/// Asks for a registration; never blocks, and registers on other threads. PINDOWN_OK: the cache had it, `registration`
/// holds it, and there will be no completion. PINDOWN_PENDING: a completion with `user_data` will come; `ticket`, unless
/// NULL, names it. PINDOWN_E_QUEUE_FULL: poll completions, then submit again. The demands of pindown_acquire hold from now
/// until the completion's registration is put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pindown_queue_submit(
    queue: Option<&pindown_queue>,
    addr: *const c_void,
    len: usize,
    access: u32,
    user_data: u64,
    registration: Option<&mut MaybeUninit<pindown_registration>>,
    ticket: Option<&mut MaybeUninit<u64>>,
) -> pindown_status {
    enter(|| {
        let out = place(registration, "registration")?;
        out.write(pindown_registration::none());
        let (queue, access) = (get(queue)?, self::access(access)?);
        // SAFETY: the header passes `submit`'s demand on to the caller.
        match unsafe { queue.submit(addr.cast(), len, access, user_data) }? {
            Submitted::Hit(hold) => {
                out.write(pindown_registration::of(hold));
                Ok(PINDOWN_OK)
            }
            Submitted::Pending(pending) => Ok(pending_as(pending, ticket)),
        }
    })
}

/// Told how far a large submission got, after each piece, by several threads at once. Must not throw.
pub type pindown_progress =
    Option<unsafe extern "C" fn(context: *mut c_void, done_bytes: usize, total_bytes: usize)>;

struct Report(pindown_progress, *mut c_void);

// SAFETY: the header demands that the function may be called with its context from any thread.
unsafe impl Send for Report {}
// SAFETY: as above, and by several at once.
unsafe impl Sync for Report {}

impl Report {
    fn tell(&self, progress: Progress) {
        if let Some(report) = self.0 {
            // SAFETY: the application's function and context, by the header alive until the completion.
            unsafe { report(self.1, progress.done_bytes, progress.total_bytes) };
        }
    }
}

/// Asks for the registration of a range of any length, in pieces that several threads register in parallel. PINDOWN_OK:
/// all was registered, and `segments` holds it. PINDOWN_PENDING: the completion has the segments. `report`, unless NULL, is
/// told after each piece, until the completion. Otherwise as pindown_queue_submit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pindown_queue_submit_large(
    queue: Option<&pindown_queue>,
    addr: *const c_void,
    len: usize,
    access: u32,
    user_data: u64,
    report: pindown_progress,
    report_context: *mut c_void,
    segments: Option<&mut MaybeUninit<*mut pindown_segments>>,
    ticket: Option<&mut MaybeUninit<u64>>,
) -> pindown_status {
    enter(|| {
        let out = place(segments, "the place for the segments")?;
        out.write(std::ptr::null_mut());
        let (queue, access) = (get(queue)?, self::access(access)?);
        let report = Report(report, report_context);
        // SAFETY: the header passes the demand on to the caller.
        let submitted = unsafe {
            queue.submit_large(addr.cast(), len, access, user_data, move |progress| report.tell(progress))
        };
        match submitted? {
            Submitted::Hit(found) => {
                give(out, Box::new(found));
                Ok(PINDOWN_OK)
            }
            Submitted::Pending(pending) => Ok(pending_as(pending, ticket)),
        }
    })
}

/// Readies pages: faults them in for `access`, and has a device that faults by itself do so. Completes with
/// pindown_completion.ready_bytes; PINDOWN_E_INCOMPLETE if that is not all. Linux 5.14. PINDOWN_PENDING on success.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_queue_prefetch(
    queue: Option<&pindown_queue>,
    addr: *const c_void,
    len: usize,
    access: u32,
    user_data: u64,
    ticket: Option<&mut MaybeUninit<u64>>,
) -> pindown_status {
    enter(|| {
        let pending = get(queue)?.prefetch(addr.cast(), len, self::access(access)?, user_data)?;
        Ok(pending_as(pending, ticket))
    })
}

/// Completes when the device has no registration of the range any more. PINDOWN_PENDING on success.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_queue_flush(
    queue: Option<&pindown_queue>,
    addr: *const c_void,
    len: usize,
    user_data: u64,
    ticket: Option<&mut MaybeUninit<u64>>,
) -> pindown_status {
    enter(|| Ok(pending_as(get(queue)?.flush(range(addr, len)?, user_data)?, ticket)))
}

/// Completes, as PINDOWN_DONE_STALE or PINDOWN_DONE_DEREGISTERED, once the memory of `registration` changed or the device
/// let go of it. Does not hold it. Cancelling ends the watch. PINDOWN_PENDING on success.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_queue_watch_stale(
    queue: Option<&pindown_queue>,
    registration: Option<&pindown_registration>,
    user_data: u64,
    ticket: Option<&mut MaybeUninit<u64>>,
) -> pindown_status {
    enter(|| {
        let hold = registration.ok_or_else(|| Failure::null("registration"))?.hold()?;
        Ok(pending_as(get(queue)?.watch_stale(hold, user_data)?, ticket))
    })
}

/// Makes pages ready for `access` on this thread: faults them in, and for writing allocates them. `ready_bytes`, unless
/// NULL, is how many from the start of the first page are; PINDOWN_E_INCOMPLETE if that is not all. Never raises SIGBUS or
/// SIGSEGV. Linux 5.14.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_prefetch(
    addr: *const c_void,
    len: usize,
    access: u32,
    ready_bytes: Option<&mut MaybeUninit<usize>>,
) -> pindown_status {
    enter_unit(|| {
        let done = pindown::queue::prefetch(range(addr, len)?, self::access(access)?);
        tell(ready_bytes, done.ready_bytes);
        match &done.stop {
            Some(stop) => Err(Failure::of(PINDOWN_E_INCOMPLETE, stop)),
            None => Ok(()),
        }
    })
}

fn pending_as(pending: Ticket, ticket: Option<&mut MaybeUninit<u64>>) -> pindown_status {
    tell(ticket, pending.as_u64());
    PINDOWN_PENDING
}
