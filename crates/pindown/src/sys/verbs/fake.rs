//! A libibverbs without a device, for tests of what real devices seldom do: refuse a
//! deregistration, go away, offer implicit on-demand paging.

use std::ffi::{c_char, c_void};
use std::mem::{offset_of, zeroed};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

use super::bindings::*;
use super::library::Lib;
use super::memory::Pd;

/// What the fake does, and what was done to it.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) odp_general: AtomicU64,
    pub(crate) longest_on_demand_bytes: AtomicU64,
    pub(crate) gone: AtomicBool,
    /// So many deregistrations fail next, with this errno.
    pub(crate) failing: AtomicU32,
    pub(crate) failing_errno: AtomicI32,
    pub(crate) live: AtomicI64,
    pub(crate) made: AtomicU32,
    pub(crate) last_flags: AtomicU32,
}

#[repr(C)]
struct Device {
    outer: verbs_context,
    pd: ibv_pd,
    state: State,
}

/// One fake device with a protection domain. Leaked: tests are short.
#[derive(Clone, Copy)]
pub(crate) struct Fake(&'static Device);

impl Fake {
    /// `extended`: with the tables of today's rdma-core; without: those of the oldest.
    pub(crate) fn new(extended: bool) -> Self {
        // SAFETY: all-zero is a value of these plain structs; the state is default either way.
        let device: &'static mut Device = Box::leak(Box::new(unsafe { zeroed() }));
        device.state = State { longest_on_demand_bytes: AtomicU64::new(u64::MAX), ..State::default() };
        device.outer.query_device_ex = Some(query_device_ex);
        if extended {
            device.outer.sz = size_of::<verbs_context>();
            device.outer.context.abi_compat = usize::MAX as *mut c_void;
        }
        device.pd.context = &raw mut device.outer.context;
        Self(device)
    }

    pub(crate) fn state(&self) -> &'static State {
        &self.0.state
    }

    pub(crate) fn pd(&self) -> Pd {
        let raw = NonNull::from(&self.0.pd);
        // SAFETY: leaked, so it outlives everything.
        unsafe { Pd::lent(library(), raw) }.expect("a context")
    }
}

fn device_of(context: *mut ibv_context) -> *mut Device {
    context.cast::<u8>().wrapping_sub(offset_of!(verbs_context, context)).cast()
}

/// # Safety
///
/// `context` is of a [`Fake`].
unsafe fn state_of(context: *mut ibv_context) -> &'static State {
    // SAFETY: it lies inside a leaked Device, whose state is only changed through atomics.
    unsafe { &(*device_of(context)).state }
}

fn set_errno(errno: i32) {
    // SAFETY: a thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    _input: *const c_void,
    attr: *mut ibv_device_attr_ex,
    _size: usize,
) -> i32 {
    // SAFETY: called with a fake's context and a struct to fill.
    unsafe {
        let state = state_of(context);
        (*attr).odp_caps.general_caps = state.odp_general.load(SeqCst);
        query_device(context, &raw mut (*attr).orig_attr)
    }
}

unsafe extern "C" fn query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> i32 {
    // SAFETY: as above.
    unsafe {
        if state_of(context).gone.load(SeqCst) {
            return libc::EIO;
        }
        ((*attr).max_mr, (*attr).max_mr_size) = (1000, u64::MAX);
    }
    0
}

unsafe extern "C" fn reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    _iova: u64,
    flags: u32,
) -> *mut ibv_mr {
    // SAFETY: called with a fake's domain.
    let state = unsafe { state_of((*pd).context) };
    let too_long = flags & IBV_ACCESS_ON_DEMAND != 0
        && length != usize::MAX
        && length as u64 > state.longest_on_demand_bytes.load(SeqCst);
    if state.gone.load(SeqCst) || too_long {
        set_errno(if too_long { libc::EINVAL } else { libc::EIO });
        return null_mut();
    }
    state.live.fetch_add(1, SeqCst);
    state.last_flags.store(flags, SeqCst);
    let key = state.made.fetch_add(1, SeqCst) + 1;
    // SAFETY: the domain's context is live.
    let context = unsafe { (*pd).context };
    Box::into_raw(Box::new(ibv_mr { context, pd, addr, length, handle: key, lkey: key, rkey: key + 0x1000 }))
}

unsafe extern "C" fn reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, flags: i32) -> *mut ibv_mr {
    // SAFETY: the same contract.
    unsafe { reg_mr_iova2(pd, addr, length, addr as u64, flags as u32) }
}

unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> i32 {
    // SAFETY: called with a region that reg_mr made and nobody gave back yet.
    let state = unsafe { state_of((*mr).context) };
    if state.gone.load(SeqCst) {
        return libc::EIO;
    }
    if state.failing.load(SeqCst) > 0 {
        state.failing.fetch_sub(1, SeqCst);
        return state.failing_errno.load(SeqCst);
    }
    state.live.fetch_sub(1, SeqCst);
    // SAFETY: from Box::into_raw, once.
    drop(unsafe { Box::from_raw(mr) });
    0
}

unsafe extern "C" fn device_name(_device: *mut ibv_device) -> *const c_char {
    c"fake0".as_ptr()
}

unsafe extern "C" fn fork_enabled() -> u32 {
    IBV_FORK_ENABLED
}

macro_rules! absent {
    ($($name:ident($($arg:ty),*) -> $ret:ty = $value:expr;)*) => {
        $(unsafe extern "C" fn $name($(_: $arg),*) -> $ret { $value })*
    };
}

absent! {
    no_list(*mut i32) -> *mut *mut ibv_device = null_mut();
    no_free_list(*mut *mut ibv_device) -> () = ();
    no_open(*mut ibv_device) -> *mut ibv_context = null_mut();
    no_close(*mut ibv_context) -> i32 = 0;
    no_port(*mut ibv_context, u8, *mut ibv_port_attr) -> i32 = libc::ENOSYS;
    no_gid(*mut ibv_context, u8, i32, *mut ibv_gid) -> i32 = libc::ENOSYS;
    no_pd(*mut ibv_context) -> *mut ibv_pd = null_mut();
    no_dealloc(*mut ibv_pd) -> i32 = 0;
    no_cq(*mut ibv_context, i32, *mut c_void, *mut c_void, i32) -> *mut ibv_cq = null_mut();
    no_destroy_cq(*mut ibv_cq) -> i32 = 0;
    no_qp(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp = null_mut();
    no_modify(*mut ibv_qp, *mut ibv_qp_attr, i32) -> i32 = libc::ENOSYS;
    no_destroy_qp(*mut ibv_qp) -> i32 = 0;
    no_text(u32) -> *const c_char = c"fake".as_ptr();
}

fn library() -> &'static Lib {
    static LIB: std::sync::OnceLock<Lib> = std::sync::OnceLock::new();
    LIB.get_or_init(|| Lib {
        get_device_list: no_list,
        free_device_list: no_free_list,
        get_device_name: device_name,
        open_device: no_open,
        close_device: no_close,
        query_device,
        query_port: no_port,
        query_gid: no_gid,
        alloc_pd: no_pd,
        dealloc_pd: no_dealloc,
        reg_mr,
        dereg_mr,
        create_cq: no_cq,
        destroy_cq: no_destroy_cq,
        create_qp: no_qp,
        modify_qp: no_modify,
        destroy_qp: no_destroy_qp,
        wc_status_str: no_text,
        reg_mr_iova2: Some(reg_mr_iova2),
        is_fork_initialized: Some(fork_enabled),
        _handle: None,
    })
}
