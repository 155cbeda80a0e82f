//! A library with running threads must not be unloaded.

use std::sync::Once;

/// Keeps the shared object that this code is part of in memory for good, if it is one: `dlclose(3)` of a
/// plugin that embeds pindown would otherwise unmap the code that its threads run, what thread-local
/// destructors and exit handlers run at the end, and the statics they use.
///
/// Found by its address (`dladdr(3)`), and marked without loading anything (`dlopen(3)` with
/// `RTLD_NOLOAD | RTLD_NODELETE`). In the program itself, where there is nothing to unload, it does nothing.
pub(crate) fn stay_loaded() {
    static ONCE: Once = Once::new();
    ONCE.call_once(mark);
}

#[cfg(not(target_feature = "crt-static"))]
fn mark() {
    // SAFETY: Dl_info is pointers and integers, for which zeroes are valid.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let inside: *const libc::c_void = std::ptr::from_ref(&MARKER).cast();
    // SAFETY: any address may be asked about; `info` lives through the call.
    let found = unsafe { libc::dladdr(inside, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return;
    }
    // SAFETY: the name is the loader's own string of an object that is loaded; nothing is loaded or run. The
    // handle is a count that is never given back, which is the purpose.
    unsafe { libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
}

/// A statically linked program loads nothing.
#[cfg(target_feature = "crt-static")]
fn mark() {}

/// Lies in the object in question.
#[cfg(not(target_feature = "crt-static"))]
static MARKER: u8 = 1;
