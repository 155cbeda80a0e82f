//! `pindown_everything`: keys for any memory of the process.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use pindown::everything::Everything;

use crate::access::access;
use crate::boundary::{enter_or, enter_unit};
use crate::cache::pindown_cache;
use crate::handle::{free, get, give_new, handle};
use crate::provider::Any;
use crate::segments::pindown_segments;
use crate::status::pindown_status;

handle!(
    /// All memory that the process has, now or later, with some rights.
    pindown_everything(Box<Everything<Any>>) = b"pd.every"
);

/// Keys for any memory, with rights `access`; costs nothing until it is used. `max_segments`: most segments that one
/// request may come to; 0: 16, or what the device takes if that is less.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_everything_new(
    cache: Option<&pindown_cache>,
    access: u32,
    max_segments: usize,
    everything: Option<&mut MaybeUninit<*mut pindown_everything>>,
) -> pindown_status {
    enter_unit(|| {
        give_new(everything, || {
            let all = get(cache)?.everything(self::access(access)?);
            Ok(Box::new(if max_segments == 0 { all } else { all.max_segments(max_segments) }))
        })
    })
}

/// Frees it. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_everything_free(everything: Option<Box<pindown_everything>>) -> pindown_status {
    free(everything)
}

/// Whether the device has one key of all memory (implicit on-demand paging). False on failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_everything_is_implicit(everything: Option<&pindown_everything>) -> bool {
    enter_or(false, || Ok(get(everything)?.is_implicit()))
}

/// The keys of `len` bytes at `addr`, in order of addresses, held until `segments` is freed. Registers what is not
/// registered yet. PINDOWN_E_HOLE, PINDOWN_E_MEMORY and PINDOWN_E_SEGMENTS say how far the request is good. The demands of
/// pindown_acquire hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pindown_everything_keys(
    everything: Option<&pindown_everything>,
    addr: *const c_void,
    len: usize,
    segments: Option<&mut MaybeUninit<*mut pindown_segments>>,
) -> pindown_status {
    enter_unit(|| {
        give_new(segments, || {
            // SAFETY: the header passes the demand on to the caller.
            Ok(Box::new(unsafe { get(everything)?.keys(addr.cast(), len) }?))
        })
    })
}
