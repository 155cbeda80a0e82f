//! `pindown_segments`: memory that took more than one registration.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use pindown::segments::Segments;

use crate::boundary::{enter, enter_or, place};
use crate::handle::{free, get, handle};
use crate::key::pindown_key;
use crate::provider::Any;
use crate::status::pindown_status::{self, *};

handle!(
    /// Memory that several registrations cover, in order of addresses and without gaps; all held until it is freed.
    pindown_segments(Box<Segments<Any>>) = b"pd.segms"
);

/// One part of a request.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct pindown_segment {
    /// Its first byte.
    pub addr: *mut c_void,
    /// Its length in bytes.
    pub len: usize,
    /// What goes into the work request.
    pub key: pindown_key,
}

/// How many segments. 0 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_segments_count(segments: Option<&pindown_segments>) -> usize {
    enter_or(0, || Ok(get(segments)?.count()))
}

/// The segment number `index`, from 0. PINDOWN_NOT_FOUND: there are fewer.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_segments_get(
    segments: Option<&pindown_segments>,
    index: usize,
    segment: Option<&mut MaybeUninit<pindown_segment>>,
) -> pindown_status {
    enter(|| {
        let out = place(segment, "segment")?;
        let Some(found) = get(segments)?.as_slice().get(index) else { return Ok(PINDOWN_NOT_FOUND) };
        let (addr, len) = (found.addr().cast_mut().cast(), found.len_bytes());
        out.write(pindown_segment { addr, len, key: found.key() });
        Ok(PINDOWN_OK)
    })
}

/// Whether any of the memory is known to have changed since it was registered. True on failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_segments_is_stale(segments: Option<&pindown_segments>) -> bool {
    enter_or(true, || Ok(get(segments)?.is_stale()))
}

/// Puts all of them. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_segments_free(segments: Option<Box<pindown_segments>>) -> pindown_status {
    free(segments)
}
