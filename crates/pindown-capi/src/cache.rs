//! `pindown_cache`: everything but requests.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

use pindown::{Cache, PageRange, Provider};

use crate::boundary::{enter_or, enter_unit};
use crate::failure::Result;
use crate::handle::{free, get, handle};
use crate::provider::Any;
use crate::status::pindown_status;

handle!(
    /// A cache of registrations.
    pindown_cache(Cache<Any>) = b"pd.cache"
);

/// A result that the caller may not want.
pub(crate) fn tell<T>(out: Option<&mut MaybeUninit<T>>, value: T) {
    if let Some(out) = out {
        out.write(value);
    }
}

pub(crate) fn range(addr: *const c_void, len: usize) -> Result<PageRange> {
    Ok(PageRange::covering(addr.addr(), len)?)
}

/// The memory changed: whatever is registered there is stale from here on. `count`, unless NULL, is how many
/// registrations were. For PINDOWN_MONITOR_MANUAL, and harmless with others. Takes the cache's lock: inside an
/// allocator use a pindown_notifier.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_invalidate(
    cache: Option<&pindown_cache>,
    addr: *const c_void,
    len: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> pindown_status {
    enter_unit(|| {
        tell(count, get(cache)?.invalidate(range(addr, len)?));
        Ok(())
    })
}

/// Returns when the device has no registration of any page of the range. PINDOWN_E_HELD: somebody holds one.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_flush(
    cache: Option<&pindown_cache>,
    addr: *const c_void,
    len: usize,
) -> pindown_status {
    enter_unit(|| {
        get(cache)?.flush(range(addr, len)?)?;
        Ok(())
    })
}

/// Drops what is registered and not held, down to `max_bytes` registered. `left_bytes`, unless NULL, is what remains.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_shrink(
    cache: Option<&pindown_cache>,
    max_bytes: u64,
    left_bytes: Option<&mut MaybeUninit<u64>>,
) -> pindown_status {
    enter_unit(|| {
        tell(left_bytes, get(cache)?.shrink(max_bytes));
        Ok(())
    })
}

/// Handles reported changes and deregisters what is due, on this thread. `count`, unless NULL, is how many
/// registrations were given back. Needed only with a provider that belongs to one thread, which must call it at least
/// every 10 ms for stale registrations to go within that time.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_cache_drive(
    cache: Option<&pindown_cache>,
    count: Option<&mut MaybeUninit<usize>>,
) -> pindown_status {
    enter_unit(|| {
        tell(count, get(cache)?.drive());
        Ok(())
    })
}

/// Ends the cache: later requests are PINDOWN_E_CLOSED, everything that is not held is deregistered; waits up to
/// `timeout_ns` for what is held. PINDOWN_E_HELD: time was up; what is left is deregistered when it is put. The handle
/// stays: call again, or pindown_cache_free.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_cache_close(cache: Option<&pindown_cache>, timeout_ns: u64) -> pindown_status {
    enter_unit(|| {
        get(cache)?.clone().close(Duration::from_nanos(timeout_ns))?;
        Ok(())
    })
}

/// Frees the handle. Queues and other handles made from the cache keep it running; with the last of them everything
/// that is not held is deregistered, and what is held after its put. Does not wait. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_cache_free(cache: Option<Box<pindown_cache>>) -> pindown_status {
    free(cache)
}

/// Most bytes that may be registered at a time, as in force. 0 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_cache_max_bytes(cache: Option<&pindown_cache>) -> u64 {
    enter_or(0, || Ok(get(cache)?.max_bytes()))
}

/// Most registrations that may exist at a time, as in force. 0 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_cache_max_regions(cache: Option<&pindown_cache>) -> u64 {
    enter_or(0, || Ok(get(cache)?.max_regions()))
}

/// Which monitor keeps the cache coherent: "ebpf", "uffd", "manual", "uncached", "none". Never to be freed; NULL on
/// failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_cache_monitor_name(cache: Option<&pindown_cache>) -> *const c_char {
    enter_or(ptr::null(), || {
        let name = get(cache)?.monitor().name();
        let known = [c"ebpf", c"uffd", c"manual", c"uncached", c"none"];
        let found = known.into_iter().find(|k| k.to_bytes() == name.as_bytes());
        Ok(found.unwrap_or(c"other").as_ptr())
    })
}

/// The protection domain of a verbs provider, to make queue pairs on: a `struct ibv_pd *`. Valid while the cache or
/// anything made from it lives. NULL for other providers and on failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_cache_ibv_pd(cache: Option<&pindown_cache>) -> *mut c_void {
    enter_or(ptr::null_mut(), || {
        Ok(match get(cache)?.provider() {
            Any::Verbs(verbs) => verbs.as_raw_pd(),
            _ => ptr::null_mut(),
        })
    })
}

/// The longest single registration in bytes. 0 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_cache_max_region_bytes(cache: Option<&pindown_cache>) -> u64 {
    enter_or(0, || Ok(get(cache)?.provider().caps().max_region_bytes))
}
