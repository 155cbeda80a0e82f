//! The structures that libfabric shares with a memory monitor; part of its ABI since 1.13.

use std::ffi::{c_int, c_void};

/// `FI_CLASS_MEM_MONITOR`.
pub(super) const CLASS_MEM_MONITOR: usize = 23;

/// `FI_VERSION(1, 13)`.
pub(super) const VERSION: u32 = 1 << 16 | 13;

/// `struct fid`.
#[repr(C)]
#[derive(Debug)]
pub struct Fid {
    pub(super) fclass: usize,
    pub(super) context: *mut c_void,
    pub(super) ops: *mut FiOps,
}

/// `struct fid_fabric`; only its address matters here.
#[repr(C)]
pub struct FidFabric {
    _opaque: [u8; 0],
}

/// `struct fi_ops`, as far as it is used.
#[repr(C)]
#[derive(Debug)]
pub(super) struct FiOps {
    size: usize,
    pub(super) close: Option<unsafe extern "C" fn(*mut Fid) -> c_int>,
    pub(super) bind: Option<unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int>,
}

/// `struct fid_mem_monitor`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct FidMemMonitor {
    pub(super) fid: Fid,
    pub(super) export_ops: *const ExportOps,
    /// libfabric's, set when it imports.
    pub(super) import_ops: *const NotifyOps,
}

type Ranged<R> = extern "C" fn(*mut FidMemMonitor, *const c_void, usize) -> R;

/// `struct fi_ops_mem_monitor`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct ExportOps {
    pub(super) size: usize,
    pub(super) start: extern "C" fn(*mut FidMemMonitor) -> c_int,
    pub(super) stop: extern "C" fn(*mut FidMemMonitor),
    pub(super) subscribe: Ranged<c_int>,
    pub(super) unsubscribe: Ranged<()>,
    pub(super) valid: Ranged<bool>,
}

/// `struct fi_ops_mem_notify`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct NotifyOps {
    size: usize,
    pub(super) notify: unsafe extern "C" fn(*mut FidMemMonitor, *const c_void, usize),
}
