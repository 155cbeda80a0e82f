//! libibverbs as an unmodified program sees it: symbols in the order of the program's libraries, so those of
//! a preloaded library first. `Real` is what lies behind.

// The field that takes the function says its type.
#![allow(clippy::missing_transmute_annotations)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Mr {
    context: *mut c_void,
    pub(crate) pd: *mut c_void,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

pub(crate) const LOCAL_WRITE: c_int = 1;
pub(crate) const REMOTE_WRITE: c_int = 2;
pub(crate) const ON_DEMAND: c_int = 1 << 6;

type OnPd = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The functions of one library, or of the program's whole list of them.
pub(crate) struct Verbs {
    reg_mr: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int) -> *mut Mr,
    dereg_mr: unsafe extern "C" fn(*mut Mr) -> c_int,
    rereg_mr: unsafe extern "C" fn(*mut Mr, c_int, *mut c_void, *mut c_void, usize, c_int) -> c_int,
    alloc_pd: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    dealloc_pd: OnPd,
    get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut c_void,
    get_device_name: unsafe extern "C" fn(*mut c_void) -> *const std::ffi::c_char,
    open_device: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    close_device: OnPd,
}

// SAFETY: functions, which any thread may call.
unsafe impl Send for Verbs {}
// SAFETY: as above.
unsafe impl Sync for Verbs {}

fn library() -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let open = || {
        // SAFETY: a terminated name; libibverbs may be loaded at any time.
        unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) }
            .expose_provenance()
    };
    ptr::with_exposed_provenance_mut(*LIBRARY.get_or_init(open))
}

/// What a program linked with libibverbs calls.
pub(crate) fn program() -> &'static Verbs {
    static PROGRAM: OnceLock<Verbs> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        library();
        Verbs::of(libc::RTLD_DEFAULT)
    })
}

/// libibverbs itself.
pub(crate) fn real() -> &'static Verbs {
    static REAL: OnceLock<Verbs> = OnceLock::new();
    REAL.get_or_init(|| Verbs::of(library()))
}

/// Whether the library under test is in front of libibverbs.
pub(crate) fn is_preloaded() -> bool {
    !library().is_null() && program().reg_mr as usize != real().reg_mr as usize
}

impl Verbs {
    fn of(scope: *mut c_void) -> Self {
        let symbol = |name: &CStr| {
            // SAFETY: an open handle, or a special one.
            let found = unsafe { libc::dlsym(scope, name.as_ptr()) };
            assert!(!found.is_null(), "{name:?}");
            found
        };
        // SAFETY: the signatures of <infiniband/verbs.h>.
        unsafe {
            use std::mem::transmute as to;
            Self {
                reg_mr: to(symbol(c"ibv_reg_mr")),
                dereg_mr: to(symbol(c"ibv_dereg_mr")),
                rereg_mr: to(symbol(c"ibv_rereg_mr")),
                alloc_pd: to(symbol(c"ibv_alloc_pd")),
                dealloc_pd: to(symbol(c"ibv_dealloc_pd")),
                get_device_list: to(symbol(c"ibv_get_device_list")),
                get_device_name: to(symbol(c"ibv_get_device_name")),
                open_device: to(symbol(c"ibv_open_device")),
                close_device: to(symbol(c"ibv_close_device")),
            }
        }
    }

    pub(crate) fn register(&self, pd: *mut c_void, addr: *mut u8, len: usize, access: c_int) -> *mut Mr {
        // SAFETY: a live domain and memory of the test.
        let mr = unsafe { (self.reg_mr)(pd, addr.cast(), len, access) };
        assert!(!mr.is_null(), "ibv_reg_mr: {}", std::io::Error::last_os_error());
        mr
    }

    pub(crate) fn deregister(&self, mr: *mut Mr) {
        // SAFETY: registered by the test, and not used any more.
        assert_eq!(unsafe { (self.dereg_mr)(mr) }, 0);
    }

    pub(crate) fn reregister(&self, mr: *mut Mr, flags: c_int, at: (*mut u8, usize), access: c_int) -> c_int {
        // SAFETY: as above.
        unsafe { (self.rereg_mr)(mr, flags, ptr::null_mut(), at.0.cast(), at.1, access) }
    }

    pub(crate) fn open(&self, name: &str) -> *mut c_void {
        // SAFETY: the list has as many devices as it says, and stays (the test leaks it).
        unsafe {
            let mut count = 0;
            let list = (self.get_device_list)(&raw mut count);
            let devices = std::slice::from_raw_parts(list, count as usize);
            let named = |d: &&*mut c_void| CStr::from_ptr((self.get_device_name)(**d)).to_str() == Ok(name);
            let context = (self.open_device)(*devices.iter().find(named).expect("the device"));
            assert!(!context.is_null());
            context
        }
    }

    pub(crate) fn domain(&self, context: *mut c_void) -> *mut c_void {
        // SAFETY: a live context.
        let pd = unsafe { (self.alloc_pd)(context) };
        assert!(!pd.is_null());
        pd
    }

    pub(crate) fn end_domain(&self, pd: *mut c_void) -> c_int {
        // SAFETY: a live domain.
        unsafe { (self.dealloc_pd)(pd) }
    }

    pub(crate) fn close(&self, context: *mut c_void) -> c_int {
        // SAFETY: a live context.
        unsafe { (self.close_device)(context) }
    }
}
