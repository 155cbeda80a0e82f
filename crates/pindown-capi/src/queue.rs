//! `pindown_queue`: registrations without blocking.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use pindown::queue::{Announce, Queue, QueueBuilder, Ticket};

use crate::boundary::{enter, enter_or, enter_unit, place};
use crate::cache::{pindown_cache, tell};
use crate::completion::pindown_completion;
use crate::failure::Result;
use crate::handle::{free, get, give_new, handle};
use crate::provider::Any;
use crate::status::pindown_status::{self, *};
use crate::versioned::{self, Versioned};

handle!(
    /// A submission and completion queue over a cache.
    pindown_queue(Box<Queue<Any>>) = b"pd.queue"
);

/// Settings of a queue. Zero is the default of each; set size = sizeof(struct pindown_queue_options).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct pindown_queue_options {
    /// sizeof(struct pindown_queue_options).
    pub size: usize,
    /// Most submissions that are pending or not yet polled. 0: 256.
    pub depth: usize,
    /// Threads that register. 0: the processors, 2 to 4.
    pub threads: usize,
    /// The pieces of pindown_queue_submit_large, in bytes. 0: 64 MiB.
    pub piece_bytes: usize,
    /// Also told of each completion, once, by the thread that finished it, after it can be polled. Returns 0 or an errno
    /// (then the completion still waits, and pindown_queue_unannounced counts it). Must not throw, nor wait for the queue.
    pub announce: Option<unsafe extern "C" fn(context: *mut c_void, user_data: u64, ok: bool) -> i32>,
    /// For `announce`; must live until the queue is freed.
    pub announce_context: *mut c_void,
}

// SAFETY: numbers and pointers of which zero is NULL; the size is first.
unsafe impl Versioned for pindown_queue_options {}

const LEAST_BYTES: usize = size_of::<pindown_queue_options>();

#[derive(Debug)]
struct Told {
    announce: unsafe extern "C" fn(*mut c_void, u64, bool) -> i32,
    context: *mut c_void,
}

// SAFETY: the header demands that the function may be called with its context from any thread.
unsafe impl Send for Told {}
// SAFETY: as above, and by several at once.
unsafe impl Sync for Told {}

impl Announce for Told {
    fn announce(&self, user_data: u64, ok: bool) -> io::Result<()> {
        // SAFETY: the application's function and context, by the header alive until the queue is freed, which
        // waits for its threads.
        let errno = unsafe { (self.announce)(self.context, user_data, ok) };
        if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno.saturating_abs())) }
    }
}

fn settings(options: &pindown_queue_options) -> QueueBuilder {
    let mut builder = QueueBuilder::default();
    if options.depth != 0 {
        builder = builder.depth(options.depth);
    }
    if options.threads != 0 {
        builder = builder.threads(options.threads);
    }
    if options.piece_bytes != 0 {
        builder = builder.piece_bytes(options.piece_bytes);
    }
    match options.announce {
        Some(announce) => builder.announce(Told { announce, context: options.announce_context }),
        None => builder,
    }
}

/// A queue over `cache`, which it keeps. `options` NULL: the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pindown_queue_new(
    cache: Option<&pindown_cache>,
    options: *const pindown_queue_options,
    queue: Option<&mut MaybeUninit<*mut pindown_queue>>,
) -> pindown_status {
    enter_unit(|| {
        give_new(queue, || {
            // SAFETY: the header's preface: NULL, or as many bytes as its size says.
            let options = unsafe { versioned::read(options, LEAST_BYTES, "pindown_queue_options") }?;
            Ok(Box::new(settings(&options).build(get(cache)?)?))
        })
    })
}

/// Takes no more submissions, completes what has not begun as PINDOWN_E_CLOSED, and waits for what runs. What is complete
/// can still be polled.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_queue_close(queue: Option<&pindown_queue>) -> pindown_status {
    enter_unit(|| {
        get(queue)?.close();
        Ok(())
    })
}

/// Closes and frees it, and puts what nobody polled. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_queue_free(queue: Option<Box<pindown_queue>>) -> pindown_status {
    free(queue)
}

/// Ends a submission that has not begun: it completes as PINDOWN_E_CANCELLED. PINDOWN_NOT_FOUND: it has begun or is done,
/// and completes as it will.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_queue_cancel(queue: Option<&pindown_queue>, ticket: u64) -> pindown_status {
    enter(|| {
        let cancelled = get(queue)?.cancel(Ticket::from_u64(ticket));
        Ok(if cancelled { PINDOWN_OK } else { PINDOWN_NOT_FOUND })
    })
}

/// The next completion, if one waits: PINDOWN_OK and `completion`, else PINDOWN_NOT_FOUND. Does not block. What the
/// completion holds is yours: pindown_completion_release.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_queue_poll(
    queue: Option<&pindown_queue>,
    completion: Option<&mut MaybeUninit<pindown_completion>>,
) -> pindown_status {
    receive(completion, || Ok(get(queue)?.poll()))
}

/// As pindown_queue_poll, waiting up to `timeout_ns`. On the one thread that may register, does what is submitted first.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_queue_wait(
    queue: Option<&pindown_queue>,
    timeout_ns: u64,
    completion: Option<&mut MaybeUninit<pindown_completion>>,
) -> pindown_status {
    receive(completion, || Ok(get(queue)?.wait(Duration::from_nanos(timeout_ns))))
}

fn receive(
    completion: Option<&mut MaybeUninit<pindown_completion>>,
    next: impl FnOnce() -> Result<Option<pindown::queue::Completion<Any>>>,
) -> pindown_status {
    enter(|| {
        let out = place(completion, "completion")?;
        out.write(pindown_completion::none());
        let Some(found) = next()? else { return Ok(PINDOWN_NOT_FOUND) };
        out.write(found.into());
        Ok(PINDOWN_OK)
    })
}

/// Submissions that are pending or wait to be polled. 0 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_queue_outstanding(queue: Option<&pindown_queue>) -> usize {
    enter_or(0, || Ok(get(queue)?.outstanding()))
}

/// Completions whose announcement failed. 0 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_queue_unannounced(queue: Option<&pindown_queue>) -> u64 {
    enter_or(0, || Ok(get(queue)?.unannounced()))
}

/// For a provider that belongs to one thread: does what is submitted, and the cache's due work, on this thread. `count`,
/// unless NULL, is how many submissions were done.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_queue_drive(
    queue: Option<&pindown_queue>,
    count: Option<&mut MaybeUninit<usize>>,
) -> pindown_status {
    enter_unit(|| {
        tell(count, get(queue)?.drive());
        Ok(())
    })
}

/// A descriptor that is readable while completions wait, for poll(2) and epoll(7). The queue's: do not read or close it.
/// -1 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_queue_fd(queue: Option<&pindown_queue>) -> i32 {
    enter_or(-1, || Ok(get(queue)?.as_fd().as_raw_fd()))
}
