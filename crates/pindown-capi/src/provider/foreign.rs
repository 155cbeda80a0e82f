//! A provider written in C: a table of functions.

use std::ffi::{CStr, c_char, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};
use std::thread;

use pindown::{Access, Affinity, DeregisterFailed, Limit, PageRange, ProviderCaps, RegisterError};

use super::any::{Any, AnyMr};
use super::pindown_provider;
use crate::boundary::enter_unit;
use crate::failure::{Failure, Result as CResult};
use crate::handle::give_new;
use crate::key::pindown_key;
use crate::status::pindown_status;
use crate::versioned::{self, Versioned};

/// One registration of a provider of your own: what its register_memory fills in, and gets back later.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct pindown_mr {
    /// Comes back in pindown_registration.key.
    pub key: pindown_key,
    /// Yours: a pointer or a number.
    pub handle: u64,
}

/// The cache may register more than was asked for, to serve neighbours.
pub const PINDOWN_OPS_MAY_WIDEN: u32 = 1;
/// Registrations follow the address space by themselves (on-demand paging): no monitor is needed.
pub const PINDOWN_OPS_COHERENT: u32 = 2;
/// Only the thread that calls pindown_provider_new may register and deregister; it calls pindown_cache_drive.
pub const PINDOWN_OPS_OWNER_THREAD: u32 = 4;

/// A provider written in C. Zero what you do not need, then set size = sizeof(struct pindown_provider_ops).
///
/// The functions are called from several threads at once (unless PINDOWN_OPS_OWNER_THREAD), never under a lock of
/// the cache, and may block. They return 0 or an errno (positive), must not throw or longjmp, and must not call
/// pindown on the same cache.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct pindown_provider_ops {
    /// sizeof(struct pindown_provider_ops).
    pub size: usize,
    /// For people; copied. NULL: "c".
    pub name: *const c_char,
    /// Most registrations at a time; 0: no bound.
    pub max_regions: u64,
    /// Longest registration in bytes; 0: no bound.
    pub max_region_bytes: u64,
    /// Most bytes registered at a time; 0: no bound.
    pub max_bytes: u64,
    /// Most registrations that one transfer may name; 0: no bound.
    pub max_segments: usize,
    /// PINDOWN_OPS_*.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
    /// Registers len bytes at addr, whole pages, with rights PINDOWN_*. On 0 the device reaches exactly these pages
    /// until deregister returned 0. ENOMEM, ENOSPC and EDQUOT make the cache evict and try once more; EAGAIN, EBUSY and
    /// EINTR are PINDOWN_E_BUSY; ENODEV is PINDOWN_E_DEVICE_GONE; EFAULT, EINVAL, EPERM, EACCES and EOPNOTSUPP are
    /// PINDOWN_E_MEMORY. Required.
    pub register_memory: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            addr: *mut c_void,
            len: usize,
            access: u32,
            mr: *mut pindown_mr,
        ) -> i32,
    >,
    /// Gives a registration back. Not 0: it stays registered, and this is called again later. Required.
    pub deregister: Option<unsafe extern "C" fn(context: *mut c_void, mr: *const pindown_mr) -> i32>,
    /// Has the device ready the pages for a transfer. NULL: there is nothing to ready.
    pub prefetch: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            key: *const pindown_key,
            addr: *mut c_void,
            len: usize,
            access: u32,
        ) -> i32,
    >,
    /// Called once, when nothing will use the context any more; from any thread. NULL: nothing to do.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

// SAFETY: numbers and pointers of which zero is NULL (`Option` of a function is one word); the size is first.
unsafe impl Versioned for pindown_provider_ops {}

/// Up to and with `deregister`: what the first version has and cannot do without.
const LEAST_BYTES: usize = std::mem::offset_of!(pindown_provider_ops, prefetch);

type Register = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, u32, *mut pindown_mr) -> i32;
type Deregister = unsafe extern "C" fn(*mut c_void, *const pindown_mr) -> i32;

#[derive(Debug)]
pub(crate) struct Foreign {
    ops: pindown_provider_ops,
    context: *mut c_void,
    register: Register,
    deregister: Deregister,
    name: &'static str,
    affinity: Affinity,
}

#[derive(Debug)]
pub(crate) struct ForeignMr(pindown_mr);

// SAFETY: the header demands that the functions may be called with the context from any thread, several at
// once; with PINDOWN_OPS_OWNER_THREAD the cache calls them from the owner only. `name` is ours.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// # Safety
    ///
    /// As `pindown_provider_new`.
    unsafe fn new(ops: *const pindown_provider_ops, context: *mut c_void) -> CResult<Self> {
        if ops.is_null() {
            return Err(Failure::null("ops"));
        }
        // SAFETY: the caller's promise.
        let ops = unsafe { versioned::read(ops, LEAST_BYTES, "pindown_provider_ops") }?;
        if ops.flags & !(PINDOWN_OPS_MAY_WIDEN | PINDOWN_OPS_COHERENT | PINDOWN_OPS_OWNER_THREAD) != 0 {
            return Err(Failure::invalid(format!(
                "flags {:#x} has bits that no PINDOWN_OPS_* names",
                ops.flags
            )));
        }
        let owned = ops.flags & PINDOWN_OPS_OWNER_THREAD != 0;
        Ok(Self {
            context,
            register: ops.register_memory.ok_or_else(|| Failure::null("ops.register_memory"))?,
            deregister: ops.deregister.ok_or_else(|| Failure::null("ops.deregister"))?,
            // SAFETY: NULL or a string, by the caller's promise.
            name: unsafe { name(ops.name) },
            affinity: if owned { Affinity::OwnerThread(thread::current().id()) } else { Affinity::AnyThread },
            ops,
        })
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn affinity(&self) -> Affinity {
        self.affinity
    }

    pub(super) fn caps(&self) -> ProviderCaps {
        let or_max = |bound: u64| if bound == 0 { u64::MAX } else { bound };
        let mut caps = ProviderCaps::default();
        caps.max_regions = or_max(self.ops.max_regions);
        caps.max_region_bytes = or_max(self.ops.max_region_bytes);
        caps.max_bytes = or_max(self.ops.max_bytes);
        caps.max_segments = if self.ops.max_segments == 0 { usize::MAX } else { self.ops.max_segments };
        caps.may_widen = self.ops.flags & PINDOWN_OPS_MAY_WIDEN != 0;
        caps.coherent = self.ops.flags & PINDOWN_OPS_COHERENT != 0;
        caps
    }

    pub(super) fn key(&self, mr: &ForeignMr) -> pindown_key {
        mr.0.key
    }

    /// # Safety
    ///
    /// As `Provider::register`.
    pub(super) unsafe fn register(
        &self,
        range: PageRange,
        access: Access,
    ) -> Result<ForeignMr, RegisterError> {
        if !self.on_allowed_thread() {
            return Err(RegisterError::WrongThread);
        }
        let mut mr = pindown_mr::default();
        let addr = std::ptr::with_exposed_provenance_mut(range.start());
        // SAFETY: the function is the application's, to be called so; `mr` is a live place.
        let errno = unsafe {
            (self.register)(self.context, addr, range.len_bytes(), access.bits().into(), &raw mut mr)
        };
        if errno == 0 { Ok(ForeignMr(mr)) } else { Err(refused(range, errno)) }
    }

    pub(super) fn deregister(&self, mr: ForeignMr) -> Result<(), DeregisterFailed<AnyMr>> {
        let errno = if self.on_allowed_thread() {
            // SAFETY: as above; `mr` came from this provider's `register` and was not given back yet.
            unsafe { (self.deregister)(self.context, &raw const mr.0) }
        } else {
            libc::EEXIST
        };
        let failed = || DeregisterFailed { mr: AnyMr::Foreign(mr), source: io_error(errno) };
        if errno == 0 { Ok(()) } else { Err(failed()) }
    }

    pub(super) fn prefetch(&self, key: pindown_key, range: PageRange, access: Access) -> io::Result<()> {
        let Some(prefetch) = self.ops.prefetch else { return Err(io::ErrorKind::Unsupported.into()) };
        let addr = std::ptr::with_exposed_provenance_mut(range.start());
        // SAFETY: as above; the cache asks for keys that are held.
        let errno =
            unsafe { prefetch(self.context, &raw const key, addr, range.len_bytes(), access.bits().into()) };
        if errno == 0 { Ok(()) } else { Err(io_error(errno)) }
    }

    fn on_allowed_thread(&self) -> bool {
        match self.affinity {
            Affinity::OwnerThread(owner) => owner == thread::current().id(),
            _ => true,
        }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(release) = self.ops.release {
            // SAFETY: the application's function, called once; nothing calls the others afterwards.
            unsafe { release(self.context) };
        }
    }
}

/// Negative numbers are taken for what was meant.
fn io_error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno.saturating_abs())
}

fn refused(range: PageRange, errno: i32) -> RegisterError {
    let source = io_error(errno);
    let limit = |limit, remedy, source| RegisterError::Limit { range, limit, value: None, remedy, source };
    match errno.saturating_abs() {
        libc::ENOMEM => limit(Limit::Memory, "raise `ulimit -l`, free memory, or register less", source),
        libc::EDQUOT => limit(Limit::Memlock, "raise `ulimit -l`, or register less", source),
        libc::ENOSPC => limit(Limit::Slots, "hold fewer registrations", source),
        libc::EAGAIN | libc::EBUSY | libc::EINTR => RegisterError::Busy { range, source },
        libc::ENODEV => RegisterError::DeviceGone { source },
        libc::EFAULT | libc::EINVAL | libc::EPERM | libc::EACCES | libc::EOPNOTSUPP => {
            RegisterError::Unsupported {
                range,
                why: "the application's provider refuses this memory",
                source,
            }
        }
        _ => RegisterError::Io { range, source },
    }
}

/// A copy that lives for ever, once for each name.
///
/// # Safety
///
/// `name` is NULL or a string.
unsafe fn name(name: *const c_char) -> &'static str {
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    if name.is_null() {
        return "c";
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = names.iter().copied().find(|known| *known == name);
    known.unwrap_or_else(|| {
        let kept: &'static str = Box::leak(name.into_owned().into_boxed_str());
        names.push(kept);
        kept
    })
}

/// A provider of your own. `ops` is copied; `context` is passed to each of its functions until `release` is called, which
/// may be after pindown_cache_free returned. On failure `release` is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pindown_provider_new(
    ops: *const pindown_provider_ops,
    context: *mut c_void,
    provider: Option<&mut MaybeUninit<*mut pindown_provider>>,
) -> pindown_status {
    enter_unit(|| {
        give_new(provider, || {
            // SAFETY: the header's preface: `ops` is NULL or leads to as many bytes as its size says.
            let foreign = unsafe { Foreign::new(ops, context) }?;
            Ok(Box::new(Any::Foreign(foreign)))
        })
    })
}
