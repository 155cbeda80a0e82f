//! The parts of `<infiniband/verbs.h>` that programs and libibverbs share: fixed since 2007.

use std::ffi::c_void;

/// `struct ibv_context`; only its address matters here.
#[repr(C)]
pub struct IbvContext {
    _opaque: [u8; 0],
}

/// `struct ibv_pd`.
#[repr(C)]
#[derive(Debug)]
pub struct IbvPd {
    pub(crate) context: *mut IbvContext,
    handle: u32,
}

/// `struct ibv_mr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IbvMr {
    /// Of the domain.
    pub context: *mut IbvContext,
    /// The domain.
    pub pd: *mut IbvPd,
    /// As asked for.
    pub addr: *mut c_void,
    /// As asked for.
    pub length: usize,
    /// The kernel's name of it; `u32::MAX` where it is the cache's.
    pub handle: u32,
    /// For work requests.
    pub lkey: u32,
    /// For a peer's.
    pub rkey: u32,
}
