//! Who called: the object that the first foreign frame of the stack belongs to.

use std::ffi::{c_int, c_void};

/// `struct _Unwind_Context`, which only the unwinder looks into.
#[repr(C)]
struct Context {
    _opaque: [u8; 0],
}

const CONTINUE: c_int = 0; // _URC_NO_REASON
const STOP: c_int = 4; // _URC_NORMAL_STOP

// The Itanium C++ ABI's unwinder, which std is linked with.
unsafe extern "C" {
    fn _Unwind_Backtrace(
        step: extern "C" fn(*mut Context, *mut c_void) -> c_int,
        found: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
}

struct Search {
    own: usize,
    caller: Option<usize>,
}

/// Whether this library was called from the object that the code at `addr` lies in. `false` where the stack
/// cannot be read. Some microseconds.
pub(super) fn is_called_by(addr: usize) -> bool {
    let Some(own) = object_of(is_called_by as *const () as usize) else { return false };
    let mut search = Search { own, caller: None };
    // SAFETY: `step` gets `search`, which outlives the call and nobody else uses meanwhile.
    unsafe { _Unwind_Backtrace(step, (&raw mut search).cast()) };
    search.caller.is_some() && search.caller == object_of(addr)
}

extern "C" fn step(context: *mut Context, found: *mut c_void) -> c_int {
    // SAFETY: what `is_called_by` passed, see there.
    let search = unsafe { &mut *found.cast::<Search>() };
    // SAFETY: the unwinder's own context of this step. A return address may lie behind its call's function.
    let object = object_of(unsafe { _Unwind_GetIP(context) }.wrapping_sub(1));
    if object == Some(search.own) {
        return CONTINUE;
    }
    search.caller = object;
    STOP
}

/// Where the object with this code is loaded (`dladdr(3)`).
fn object_of(addr: usize) -> Option<usize> {
    // SAFETY: the structure is plain pointers, for which zeroes are valid.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; `info` is a live structure for the answer.
    let found = unsafe { libc::dladdr(std::ptr::without_provenance(addr), &mut info) };
    (found != 0).then(|| info.dli_fbase.addr())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    #[test]
    fn objects_are_told_apart() {
        let (own, libc) =
            (object_of(step as *const () as usize), object_of(libc::getpid as *const () as usize));
        assert!(own.is_some() && libc.is_some() && own != libc);
        assert_eq!(object_of(8), None);
    }

    /// Asked inside a callback of qsort(3), the first foreign frame is libc's.
    #[test]
    fn the_caller_is_found() {
        static ANSWERS: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(true)];
        extern "C" fn compare(_: *const c_void, _: *const c_void) -> c_int {
            ANSWERS[0].store(is_called_by(libc::qsort as *const () as usize), Relaxed);
            ANSWERS[1].store(is_called_by(step as *const () as usize), Relaxed);
            0
        }
        let mut two = [1u64, 2];
        // SAFETY: two elements of eight bytes, which `compare` does not even read.
        unsafe { libc::qsort(two.as_mut_ptr().cast(), 2, 8, Some(compare)) };
        assert_eq!(ANSWERS.each_ref().map(|answer| answer.load(Relaxed)), [true, false]);
    }
}
