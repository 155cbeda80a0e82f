//! `pindown_completion`: what a submission came to.

use std::mem::MaybeUninit;
use std::ptr;

use pindown::Ended;
use pindown::queue::{Completion, Done, Prefetched};

use crate::boundary::enter_unit;
use crate::failure::Failure;
use crate::handle::give;
use crate::last_error;
use crate::provider::Any;
use crate::registration::pindown_registration;
use crate::segments::pindown_segments;
use crate::status::pindown_status::{self, *};

/// What a completion brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum pindown_done {
    /// Nothing: it failed.
    PINDOWN_DONE_NOTHING = 0,
    /// `registration` holds the range.
    PINDOWN_DONE_REGISTERED = 1,
    /// `ready_bytes` of the range are ready.
    PINDOWN_DONE_PREFETCHED = 2,
    /// `segments` hold the range.
    PINDOWN_DONE_SEGMENTS = 3,
    /// The device has no registration of the range.
    PINDOWN_DONE_FLUSHED = 4,
    /// The watched registration's memory changed: its transfers move the old pages.
    PINDOWN_DONE_STALE = 5,
    /// The device let go of the watched registration.
    PINDOWN_DONE_DEREGISTERED = 6,
}

/// What a submission came to.
#[derive(Debug)]
#[repr(C)]
pub struct pindown_completion {
    /// As submitted.
    pub user_data: u64,
    /// PINDOWN_OK or why not; pindown_last_error then has the words, until the next failure on this thread.
    pub status: pindown_status,
    /// What it brings.
    pub done: pindown_done,
    /// Held where `done` says so.
    pub registration: pindown_registration,
    /// Not NULL where `done` says so.
    pub segments: *mut pindown_segments,
    /// Bytes that a prefetch made ready, from the start of the first page.
    pub ready_bytes: usize,
    /// The errno behind a failure, or 0.
    pub error: i32,
    /// 0.
    pub reserved: [u32; 7],
}

impl pindown_completion {
    pub(crate) fn none() -> Self {
        Self {
            user_data: 0,
            status: PINDOWN_OK,
            done: pindown_done::PINDOWN_DONE_NOTHING,
            registration: pindown_registration::none(),
            segments: ptr::null_mut(),
            ready_bytes: 0,
            error: 0,
            reserved: [0; 7],
        }
    }

    fn failed(&mut self, failure: &Failure) {
        last_error::set(failure);
        (self.status, self.error) = (failure.status, failure.errno);
    }

    fn fill(&mut self, done: Done<Any>) {
        use pindown_done::*;
        self.done = match done {
            Done::Registered(hold) => {
                self.registration = pindown_registration::of(hold);
                PINDOWN_DONE_REGISTERED
            }
            Done::Prefetched(prefetched, hold) => {
                self.prefetched(&prefetched);
                self.registration = hold.map_or_else(pindown_registration::none, pindown_registration::of);
                PINDOWN_DONE_PREFETCHED
            }
            Done::Segments(found) => {
                let mut place = MaybeUninit::new(ptr::null_mut());
                give(&mut place, Box::new(found));
                // SAFETY: it was initialised, to NULL.
                self.segments = unsafe { place.assume_init() };
                PINDOWN_DONE_SEGMENTS
            }
            Done::Flushed => PINDOWN_DONE_FLUSHED,
            Done::Ended(Ended::Stale) => PINDOWN_DONE_STALE,
            Done::Ended(Ended::Deregistered) => PINDOWN_DONE_DEREGISTERED,
            _ => PINDOWN_DONE_NOTHING,
        };
    }

    fn prefetched(&mut self, prefetched: &Prefetched) {
        self.ready_bytes = prefetched.ready_bytes;
        if let Some(stop) = &prefetched.stop {
            self.failed(&Failure::of(PINDOWN_E_INCOMPLETE, stop));
        }
    }
}

impl From<Completion<Any>> for pindown_completion {
    fn from(completion: Completion<Any>) -> Self {
        let mut this = Self { user_data: completion.user_data, ..Self::none() };
        match completion.result {
            Ok(done) => this.fill(done),
            Err(error) => this.failed(&Box::<Failure>::from(error)),
        }
        this
    }
}

/// Puts what `completion` holds, registration or segments, and leaves it empty.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_completion_release(completion: Option<&mut pindown_completion>) -> pindown_status {
    enter_unit(|| {
        let completion = completion.ok_or_else(|| Failure::null("completion"))?;
        completion.registration.put();
        let segments = std::mem::replace(&mut completion.segments, ptr::null_mut());
        completion.done = pindown_done::PINDOWN_DONE_NOTHING;
        if !segments.is_null() {
            // SAFETY: by the header a completion's segments are NULL or came from a box here, freed once: the
            // structure forgot them above.
            crate::handle::take(Some(unsafe { Box::from_raw(segments) }))?;
        }
        Ok(())
    })
}
