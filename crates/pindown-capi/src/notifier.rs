//! `pindown_notifier`: reports from inside an allocator.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pindown::core::EventKind;
use pindown::{Notifier, PageRange};

use crate::boundary::enter_unit;
use crate::cache::pindown_cache;
use crate::handle::{free, get, give_new, handle};
use crate::status::pindown_status::{self, *};

handle!(
    /// Through which changes are reported from anywhere.
    pindown_notifier(Notifier) = b"pd.notif"
);

/// Through which changes of memory are reported to `cache` from anywhere, also from inside free(). It may outlive the
/// cache, and then reports to nobody.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_notifier_new(
    cache: Option<&pindown_cache>,
    notifier: Option<&mut MaybeUninit<*mut pindown_notifier>>,
) -> pindown_status {
    enter_unit(|| give_new(notifier, || Ok(get(cache)?.notifier())))
}

/// Frees it. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_notifier_free(notifier: Option<Box<pindown_notifier>>) -> pindown_status {
    free(notifier)
}

/// The memory changed, or is about to: what was registered there before this call is stale. Allocates nothing, takes no
/// lock, does not block; a failure leaves pindown_last_error alone.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_notifier_invalidate(
    notifier: Option<&pindown_notifier>,
    addr: *const c_void,
    len: usize,
) -> pindown_status {
    // Failures are not formatted: that would allocate.
    report(notifier, |notifier| match PageRange::clipped(addr.addr(), len) {
        Some(range) => {
            notifier.invalidate(range, EventKind::Manual);
            PINDOWN_OK
        }
        None => PINDOWN_E_RANGE,
    })
}

/// Reports were lost: everything is stale. As pindown_notifier_invalidate otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_notifier_lost(notifier: Option<&pindown_notifier>) -> pindown_status {
    report(notifier, |notifier| {
        notifier.lost();
        PINDOWN_OK
    })
}

fn report(
    notifier: Option<&pindown_notifier>,
    tell: impl FnOnce(&Notifier) -> pindown_status,
) -> pindown_status {
    let Some(handle) = notifier else { return PINDOWN_E_INVALID };
    let Some(notifier) = crate::handle::peek(handle) else { return PINDOWN_E_HANDLE };
    catch_unwind(AssertUnwindSafe(|| tell(notifier))).unwrap_or(PINDOWN_E_PANIC)
}
