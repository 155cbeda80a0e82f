//! [`Lib`]: libibverbs, loaded when first asked for.

use std::ffi::{c_char, c_void};
use std::io;
use std::sync::OnceLock;

use super::bindings::*;

/// The file that `ibverbs` packages install; its ABI has been `IBVERBS_1.x` since 2007.
const SONAME: &str = "libibverbs.so.1";

macro_rules! api {
    (required { $($name:ident: $sym:literal => fn($($arg:ty),*) $(-> $ret:ty)?;)* }
     optional { $($oname:ident: $osym:literal => fn($($oarg:ty),*) $(-> $oret:ty)?;)* }) => {
        /// The functions of libibverbs that are used. Inline ones go through
        /// [`ibv_context`]'s and [`verbs_context`]'s tables instead.
        pub(crate) struct Lib {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $(pub(crate) $oname: Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>,)*
            /// Keeps the library mapped; `None` for the fake of the tests.
            pub(crate) _handle: Option<libloading::Library>,
        }

        impl Lib {
            fn open() -> Result<Self, libloading::Error> {
                // SAFETY: the initialisers of libibverbs only read its environment and set up
                // locks; it is a library made to be loaded at any time (ibv_fork_init(3)).
                let handle = unsafe { libloading::Library::new(SONAME)? };
                // SAFETY: each signature was written from ibv_*(3) and <infiniband/verbs.h>; the
                // pointers stay valid since `_handle` lives as long as they do.
                unsafe {
                    Ok(Self {
                        $($name: *handle.get($sym)?,)*
                        $($oname: handle.get($osym).ok().map(|s| *s),)*
                        _handle: Some(handle),
                    })
                }
            }
        }
    };
}

api! {
    required {
        get_device_list: b"ibv_get_device_list\0" => fn(*mut i32) -> *mut *mut ibv_device;
        free_device_list: b"ibv_free_device_list\0" => fn(*mut *mut ibv_device);
        get_device_name: b"ibv_get_device_name\0" => fn(*mut ibv_device) -> *const c_char;
        open_device: b"ibv_open_device\0" => fn(*mut ibv_device) -> *mut ibv_context;
        close_device: b"ibv_close_device\0" => fn(*mut ibv_context) -> i32;
        query_device: b"ibv_query_device\0" => fn(*mut ibv_context, *mut ibv_device_attr) -> i32;
        query_port: b"ibv_query_port\0" => fn(*mut ibv_context, u8, *mut ibv_port_attr) -> i32;
        query_gid: b"ibv_query_gid\0" => fn(*mut ibv_context, u8, i32, *mut ibv_gid) -> i32;
        alloc_pd: b"ibv_alloc_pd\0" => fn(*mut ibv_context) -> *mut ibv_pd;
        dealloc_pd: b"ibv_dealloc_pd\0" => fn(*mut ibv_pd) -> i32;
        reg_mr: b"ibv_reg_mr\0" => fn(*mut ibv_pd, *mut c_void, usize, i32) -> *mut ibv_mr;
        dereg_mr: b"ibv_dereg_mr\0" => fn(*mut ibv_mr) -> i32;
        create_cq: b"ibv_create_cq\0" => fn(*mut ibv_context, i32, *mut c_void, *mut c_void, i32) -> *mut ibv_cq;
        destroy_cq: b"ibv_destroy_cq\0" => fn(*mut ibv_cq) -> i32;
        create_qp: b"ibv_create_qp\0" => fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
        modify_qp: b"ibv_modify_qp\0" => fn(*mut ibv_qp, *mut ibv_qp_attr, i32) -> i32;
        destroy_qp: b"ibv_destroy_qp\0" => fn(*mut ibv_qp) -> i32;
        wc_status_str: b"ibv_wc_status_str\0" => fn(u32) -> *const c_char;
    }
    optional {
        // rdma-core 28 (IBVERBS_1.8): takes optional flags such as relaxed ordering.
        reg_mr_iova2: b"ibv_reg_mr_iova2\0" => fn(*mut ibv_pd, *mut c_void, usize, u64, u32) -> *mut ibv_mr;
        // rdma-core 35 (IBVERBS_1.13).
        is_fork_initialized: b"ibv_is_fork_initialized\0" => fn() -> u32;
    }
}

impl Lib {
    /// Loads libibverbs, once a process. It is never unloaded: providers keep threads and TLS.
    pub(crate) fn load() -> Result<&'static Self, LoadError> {
        static LIB: OnceLock<Result<Lib, String>> = OnceLock::new();
        let loaded = LIB.get_or_init(|| Self::open().map_err(|e| e.to_string()));
        loaded.as_ref().map_err(|why| LoadError { why: why.clone() })
    }

    /// `ibv_is_fork_initialized(3)`'s answer; `None` before rdma-core 35.
    pub(crate) fn fork_state(&self) -> Option<u32> {
        // SAFETY: takes nothing, and may be called at any time.
        self.is_fork_initialized.map(|f| unsafe { f() })
    }

    /// The text of a work completion's status.
    pub(crate) fn status_text(&self, status: u32) -> &'static str {
        // SAFETY: returns a static string for any value ("unknown" outside the enum).
        let text = unsafe { std::ffi::CStr::from_ptr((self.wc_status_str)(status)) };
        text.to_str().unwrap_or("unknown status")
    }
}

impl std::fmt::Debug for Lib {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(SONAME)
    }
}

/// libibverbs is not there, or too old.
#[derive(Clone, Debug, thiserror::Error)]
#[error("libibverbs.so.1 cannot be loaded ({why}): install rdma-core's libibverbs1 and ibverbs-providers")]
pub struct LoadError {
    /// The loader's message.
    pub why: String,
}

/// A verbs function's `int` answer: 0, or an errno (a few old ones: -1 and `errno`).
pub(crate) fn check(ret: i32) -> io::Result<()> {
    match ret {
        0 => Ok(()),
        e if e > 0 => Err(io::Error::from_raw_os_error(e)),
        _ => Err(io::Error::last_os_error()),
    }
}
