//! The io_uring provider, on a ring that the application has.

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use pindown::provider::io_uring::{UringBuilder, UringError, UringProvider};

use super::any::Any;
use super::pindown_provider;
use crate::boundary::enter_unit;
use crate::failure::{Failure, Result};
use crate::handle::give_new;
use crate::status::pindown_status::{self, *};
use crate::versioned::{self, Versioned};

/// The ring has a table of buffers; use its empty slots application_slots..slots. Nobody else may fill or clear them,
/// nor unregister the table, while the cache or a registration exists.
pub const PINDOWN_IO_URING_EXISTING_TABLE: u32 = 1;

/// Settings of pindown_provider_io_uring. Zero is the default of each; set size = sizeof(struct
/// pindown_io_uring_options).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct pindown_io_uring_options {
    /// sizeof(struct pindown_io_uring_options).
    pub size: usize,
    /// Size of the ring's table, the application's slots included; at most 16384. 0: 1024.
    pub slots: u32,
    /// Slots 0 to this one stay the application's own.
    pub application_slots: u32,
    /// PINDOWN_IO_URING_*.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
    /// Not 0: for each buffer that the kernel has let go of, a completion on the ring with user_data = this + buf_index.
    pub release_tags: u64,
}

// SAFETY: numbers only, the size first.
unsafe impl Versioned for pindown_io_uring_options {}

const LEAST_BYTES: usize = size_of::<pindown_io_uring_options>();

fn build(ring_fd: i32, options: &pindown_io_uring_options) -> Result<UringProvider> {
    if ring_fd < 0 {
        return Err(Failure::invalid(format!(
            "ring_fd is {ring_fd}: pass the descriptor of io_uring_setup(2)"
        )));
    }
    if options.flags & !PINDOWN_IO_URING_EXISTING_TABLE != 0 {
        return Err(Failure::invalid("options.flags has bits that no PINDOWN_IO_URING_* names"));
    }
    // SAFETY: an open descriptor by the header, for this call; a closed one makes the calls on it fail.
    let ring = unsafe { BorrowedFd::borrow_raw(ring_fd) };
    settings(options).on(ring).map_err(|error| Failure::of(status(&error), &error))
}

fn settings(options: &pindown_io_uring_options) -> UringBuilder {
    let mut builder = UringProvider::builder();
    if options.slots != 0 {
        builder = builder.slots(options.slots);
    }
    builder = builder.application_slots(options.application_slots).release_tags(options.release_tags);
    if options.flags & PINDOWN_IO_URING_EXISTING_TABLE != 0 {
        // SAFETY: the flag's documentation demands what the method does.
        builder = unsafe { builder.existing_table() };
    }
    builder
}

fn status(error: &UringError) -> pindown_status {
    match error {
        UringError::WrongThread => PINDOWN_E_WRONG_THREAD,
        UringError::Slots { .. } => PINDOWN_E_INVALID,
        UringError::Io { .. } => PINDOWN_E_IO,
        _ => PINDOWN_E_DEVICE,
    }
}

/// Fixed buffers of the io_uring behind `ring_fd`, which the application keeps submitting to. The descriptor is
/// duplicated. The cache owns the ring's table of buffers, or part of it: see `options` (NULL: the defaults).
/// pindown_key.buf_index is what the SQE wants; the SQE names memory by its address. Linux 5.19.
///
/// A ring with IORING_SETUP_SINGLE_ISSUER belongs to the calling thread, which must call pindown_cache_drive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pindown_provider_io_uring(
    ring_fd: i32,
    options: *const pindown_io_uring_options,
    provider: Option<&mut MaybeUninit<*mut pindown_provider>>,
) -> pindown_status {
    enter_unit(|| {
        give_new(provider, || {
            // SAFETY: the header's preface: NULL, or as many bytes as its size says.
            let options = unsafe { versioned::read(options, LEAST_BYTES, "pindown_io_uring_options") }?;
            Ok(Box::new(Any::Uring(Box::new(build(ring_fd, &options)?))))
        })
    })
}
