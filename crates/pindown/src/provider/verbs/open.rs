//! Making a provider: from a device's name, or from a protection domain that is already there.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::implicit::Implicit;
use super::options::{ForkState, Options, Paging};
use super::{OpenError, Verbs, limits};
use crate::sys::verbs::{self as sys, Context, DeviceAttr, Lib, Pd, device_names};

impl Verbs {
    /// Opens the device called `name` (`ibv_devices(1)`) and makes a protection domain on it.
    ///
    /// Fails with [`OpenError::NoOnDemandPaging`] and its kin when the device lacks what `options`
    /// ask for. In the on-demand modes the longest region is found by trying.
    pub fn open(name: &str, options: Options) -> Result<Self, OpenError> {
        let lib = Lib::load()?;
        let io = |what| move |source| OpenError::Io { what, device: name.to_owned(), source };
        let found = Context::open(lib, name).map_err(io("ibv_open_device"))?;
        let context = found.ok_or_else(|| OpenError::NoDevice {
            name: name.to_owned(),
            found: device_names(lib).unwrap_or_default(),
        })?;
        let pd = Pd::alloc(context).map_err(io("ibv_alloc_pd"))?;
        Self::on(pd, options)
    }

    /// Works on `pd`, a `struct ibv_pd *` of the libibverbs that this process has loaded.
    ///
    /// # Safety
    ///
    /// `pd` is a live protection domain, and it and its context stay so until the provider (so
    /// the cache that owns it) and all that was made from it are gone.
    pub unsafe fn from_pd(pd: *mut c_void, options: Options) -> Result<Self, OpenError> {
        let lib = Lib::load()?;
        let raw = NonNull::new(pd.cast()).ok_or(OpenError::NullDomain)?;
        // SAFETY: the caller's promise.
        let pd = unsafe { Pd::lent(lib, raw) }.ok_or(OpenError::NullDomain)?;
        Self::on(pd, options)
    }

    pub(super) fn on(pd: Pd, options: Options) -> Result<Self, OpenError> {
        let device = pd.context().name();
        let query = |source| OpenError::Io { what: "ibv_query_device_ex", device: device.clone(), source };
        let attr = pd.context().query().map_err(query)?;
        let paging = choose(&attr, options.paging, &device)?;
        if options.memory_windows && !attr.memory_windows {
            return Err(OpenError::NoMemoryWindows { device });
        }
        let fork = ForkState::from_raw(pd.context().lib().fork_state());
        let pd = Arc::new(pd);
        Ok(Self {
            caps: limits::caps(&attr, &pd, paging != Paging::Pinned, fork),
            implicit: (paging == Paging::Implicit).then(|| Implicit::new(pd.clone())),
            pd,
            paging,
            options,
            fork,
            owner_pid: std::process::id(),
            lost_with_device: AtomicU64::new(0),
        })
    }
}

/// The paging that is both asked for and there.
fn choose(attr: &DeviceAttr, asked: Paging, device: &str) -> Result<Paging, OpenError> {
    let on_demand = attr.odp_general & sys::IBV_ODP_SUPPORT != 0;
    let implicit = attr.odp_general & sys::IBV_ODP_SUPPORT_IMPLICIT != 0;
    match asked {
        Paging::Pinned => Ok(Paging::Pinned),
        Paging::OnDemand if on_demand => Ok(Paging::OnDemand),
        Paging::Implicit if implicit => Ok(Paging::Implicit),
        Paging::Auto if implicit => Ok(Paging::Implicit),
        Paging::Auto if on_demand => Ok(Paging::OnDemand),
        Paging::Auto => Ok(Paging::Pinned),
        Paging::Implicit if on_demand => Err(OpenError::NoImplicitPaging { device: device.to_owned() }),
        Paging::OnDemand | Paging::Implicit => Err(OpenError::NoOnDemandPaging { device: device.to_owned() }),
    }
}
