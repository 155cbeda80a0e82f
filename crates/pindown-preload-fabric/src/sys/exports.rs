//! What the library exports: its own call, and the two functions of libfabric by which it knows when.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::NonNull;

use pindown_preload::sys::{symbol_of, versioned_symbol_of};

use super::abi::{Fid, FidFabric};
use super::import::{import_once, real_fi_open};

/// Makes pindown libfabric's memory monitor. To be called before the first `fi_domain(3)`, with libfabric
/// loaded; later calls return what the first did.
///
/// 0, or a negative errno: `-ENOSYS` no libfabric, no monitor that starts, or none that libfabric takes;
/// `-EBUSY` another monitor is in use; `-EPERM` the environment forbids it.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_fabric_import() -> c_int {
    import_once()
}

/// In front of `fi_open`: whoever is about to import a monitor finds ours.
///
/// # Safety
///
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_open(
    version: u32,
    name: *const c_char,
    attr: *mut c_void,
    attr_len: usize,
    flags: u64,
    fid: *mut *mut Fid,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a string, as the caller promises.
    if !name.is_null() && unsafe { CStr::from_ptr(name) } == c"mr_cache" {
        import_once();
    }
    // SAFETY: the caller's promise.
    real_fi_open()
        .map_or(-libc::ENOSYS, |open| unsafe { open(version, name, attr, attr_len, flags, fid, context) })
}

type FiFabric = unsafe extern "C" fn(*mut c_void, *mut *mut FidFabric, *mut c_void) -> c_int;

/// In front of `fi_fabric(3)`, which comes before every domain. Of the two versions of the symbol this
/// serves the one of libfabric 1.1 and later.
///
/// # Safety
///
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_fabric(
    attr: *mut c_void,
    fabric: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int {
    import_once();
    match versioned_symbol_of(c"libfabric.so.1", c"fi_fabric", c"FABRIC_1.1") {
        // SAFETY: the symbol's signature, and the caller's promise.
        Some(real) => unsafe { transmute::<NonNull<c_void>, FiFabric>(real)(attr, fabric, context) },
        None => -libc::ENOSYS,
    }
}

/// In front of `fi_fabric2(3)` of libfabric 2.0.
///
/// # Safety
///
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_fabric2(
    info: *mut c_void,
    fabric: *mut *mut FidFabric,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    type FiFabric2 = unsafe extern "C" fn(*mut c_void, *mut *mut FidFabric, u64, *mut c_void) -> c_int;
    import_once();
    match symbol_of(c"libfabric.so.1", c"fi_fabric2") {
        // SAFETY: the symbol's signature, and the caller's promise.
        Some(real) => unsafe { transmute::<NonNull<c_void>, FiFabric2>(real)(info, fabric, flags, context) },
        None => -libc::ENOSYS,
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static WHEN_LOADED: extern "C" fn() = prefer_import;

/// libfabric reads the variable when it is first used, and takes its word before an imported monitor.
/// Here, before `main`, no other thread reads the environment.
extern "C" fn prefer_import() {
    let is_preloaded = std::env::var("LD_PRELOAD").is_ok_and(|v| v.contains("libpindown_fabric"));
    let is_off = std::env::var("PINDOWN_MONITOR").is_ok_and(|v| v == "off");
    let asked = std::env::var("FI_MR_CACHE_MONITOR");
    if is_preloaded && !is_off && asked.is_ok_and(|v| v != "disabled") {
        // SAFETY: initialisers run before `main`, in one thread.
        unsafe { std::env::remove_var("FI_MR_CACHE_MONITOR") };
    }
}
