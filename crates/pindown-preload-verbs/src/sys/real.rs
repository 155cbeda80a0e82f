//! libibverbs' own functions.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::OnceLock;

use pindown_preload::sys::{next_symbol, symbol_of};

use super::abi::{IbvContext, IbvMr, IbvPd};
use super::caller;

type RegMr = unsafe extern "C" fn(*mut IbvPd, *mut c_void, usize, c_int) -> *mut IbvMr;
type RegMrIova2 = unsafe extern "C" fn(*mut IbvPd, *mut c_void, usize, u64, c_uint) -> *mut IbvMr;
type DeregMr = unsafe extern "C" fn(*mut IbvMr) -> c_int;
type DeallocPd = unsafe extern "C" fn(*mut IbvPd) -> c_int;
type CloseDevice = unsafe extern "C" fn(*mut IbvContext) -> c_int;
type ReregMr = unsafe extern "C" fn(*mut IbvMr, c_int, *mut IbvPd, *mut c_void, usize, c_int) -> c_int;

/// Whoever calls one of ours has libibverbs loaded.
pub(super) struct Real {
    reg_mr: RegMr,
    /// Since rdma-core 28. The one above calls it through the dynamic linker, so comes back to ours.
    reg_mr_iova2: Option<RegMrIova2>,
    pub(super) rereg_mr: Option<ReregMr>,
    pub(super) dereg_mr: DeregMr,
    pub(super) dealloc_pd: DeallocPd,
    pub(super) close_device: CloseDevice,
}

impl Real {
    /// `None`: there is no libibverbs to pass on to.
    pub(super) fn get() -> Option<&'static Self> {
        static REAL: OnceLock<Option<Real>> = OnceLock::new();
        REAL.get_or_init(Self::find).as_ref()
    }

    fn find() -> Option<Self> {
        // SAFETY: the signatures are those of <infiniband/verbs.h> for these names, whose ABI has not
        // changed since IBVERBS_1.1 (2007); the library stays loaded.
        unsafe {
            Some(Self {
                reg_mr: transmute::<NonNull<c_void>, RegMr>(symbol(c"ibv_reg_mr")?),
                reg_mr_iova2: symbol(c"ibv_reg_mr_iova2")
                    .map(|f| transmute::<NonNull<c_void>, RegMrIova2>(f)),
                rereg_mr: symbol(c"ibv_rereg_mr").map(|f| transmute::<NonNull<c_void>, ReregMr>(f)),
                dereg_mr: transmute::<NonNull<c_void>, DeregMr>(symbol(c"ibv_dereg_mr")?),
                dealloc_pd: transmute::<NonNull<c_void>, DeallocPd>(symbol(c"ibv_dealloc_pd")?),
                close_device: transmute::<NonNull<c_void>, CloseDevice>(symbol(c"ibv_close_device")?),
            })
        }
    }

    /// Whether libibverbs itself is calling.
    pub(super) fn is_calling(&self) -> bool {
        caller::is_called_by(self.reg_mr as *const () as usize)
    }

    /// Registers, as `ibv_reg_mr_iova2(3)`.
    ///
    /// # Safety
    ///
    /// As for that function.
    pub(super) unsafe fn register(
        &self,
        pd: *mut IbvPd,
        (addr, length): (*mut c_void, usize),
        iova: u64,
        access: c_uint,
    ) -> *mut IbvMr {
        match self.reg_mr_iova2 {
            // SAFETY: the caller's promise.
            Some(f) => unsafe { f(pd, addr, length, iova, access) },
            // SAFETY: the caller's promise. Without the other function there is no other `iova`.
            None => unsafe { (self.reg_mr)(pd, addr, length, access as c_int) },
        }
    }
}

fn symbol(name: &CStr) -> Option<NonNull<c_void>> {
    symbol_of(c"libibverbs.so.1", name).or_else(|| next_symbol(name))
}
