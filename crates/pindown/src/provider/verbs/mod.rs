//! The verbs provider: memory regions of RDMA devices (InfiniBand, RoCE, iWARP, soft-RoCE).
//!
//! libibverbs is loaded when the first provider is made; a program that makes none does not need
//! it. Works on a protection domain that the application already has ([`Verbs::from_pd`]), or
//! opens a device by name ([`Verbs::open`]).
//!
//! Which bytes a remote peer can reach, and for how long, is told in `docs/remote-access.md`.
//!
//! Sources: `ibv_reg_mr(3)`, `ibv_advise_mr(3)`, `ibv_query_device_ex(3)`,
//! `drivers/infiniband/core/umem.c` and `umem_odp.c`.

mod devices;
mod error;
mod implicit;
mod limits;
mod open;
mod options;
pub mod rc;
mod region;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pindown_core::{Access, DeregisterFailed, PageRange, Provider, ProviderCaps, RegisterError};

pub use devices::{DeviceReport, PortReport, devices};
pub use error::{LoadError, OpenError};
pub use limits::pieces;
pub use options::{ForkState, Options, Paging};
pub use region::{Key, Region};

use crate::sys::verbs::{self as sys, Advice, Pd};
use implicit::Implicit;

/// Registers memory with an RDMA device.
#[derive(Debug)]
pub struct Verbs {
    // Dropped first: its regions are of `pd`.
    implicit: Option<Implicit>,
    pd: Arc<Pd>,
    caps: ProviderCaps,
    paging: Paging,
    options: Options,
    fork: ForkState,
    owner_pid: u32,
    lost_with_device: AtomicU64,
}

impl Verbs {
    /// How regions are made; never [`Paging::Auto`].
    pub fn paging(&self) -> Paging {
        self.paging
    }

    /// The options that it was made with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The device's name, e.g. `"mlx5_0"`.
    pub fn device(&self) -> String {
        self.pd.context().name()
    }

    /// How registrations and `fork(2)` get on.
    pub fn fork_state(&self) -> ForkState {
        self.fork
    }

    /// Regions that the kernel took back because the device went away, rather than by
    /// deregistration.
    pub fn lost_with_device(&self) -> u64 {
        self.lost_with_device.load(Ordering::Relaxed)
    }

    /// The protection domain (`struct ibv_pd *`), for making queue pairs on. Valid while the
    /// provider, or anything made from it, lives.
    pub fn as_raw_pd(&self) -> *mut std::ffi::c_void {
        self.pd.raw().cast()
    }

    /// Has the device fault in the pages of `range` now rather than at the first transfer, and
    /// returns when it has (`ibv_advise_mr(3)`, `IB_UVERBS_ADVISE_MR_FLAG_FLUSH`). For on-demand regions.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Unsupported` where rdma-core or its driver does not offer it (soft-RoCE from rdma-core
    /// 57); EFAULT for a range with holes; ENOMEM; EINVAL from soft-RoCE for a region without local write.
    pub fn prefetch(&self, key: Key, range: PageRange, access: Access) -> io::Result<()> {
        self.advise(key, range, if access.is_write() { Advice::PrefetchWrite } else { Advice::Prefetch })
    }

    /// Tells the device of those pages of `range` that are in memory, and faults nothing in
    /// (`IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT`): after [`queue::prefetch`](crate::queue::prefetch), say.
    ///
    /// # Errors
    ///
    /// As [`prefetch`](Self::prefetch).
    pub fn prefetch_resident(&self, key: Key, range: PageRange) -> io::Result<()> {
        self.advise(key, range, Advice::PrefetchNoFault)
    }

    fn advise(&self, key: Key, range: PageRange, advice: Advice) -> io::Result<()> {
        for piece in pieces(range, 1 << 30) {
            let (addr, len) = (piece.start() as u64, piece.len_bytes() as u32);
            let done = self.pd.advise(sys::Sge { addr, len_bytes: len, lkey: key.lkey }, advice);
            done.map_err(error::explain_advice)?;
        }
        Ok(())
    }

    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    fn explicit_paging(&self) -> sys::Paging {
        if self.paging == Paging::Pinned { sys::Paging::Pinned } else { sys::Paging::OnDemand }
    }

    /// Refuses what cannot work before a call is spent on it.
    fn admit(&self, range: PageRange) -> Result<(), RegisterError> {
        if range.len_bytes() as u64 > self.caps.max_region_bytes {
            let source = io::Error::from_raw_os_error(libc::EINVAL);
            return Err(error::too_long(range, self.caps.max_region_bytes, source));
        }
        if std::process::id() != self.owner_pid {
            let source = io::Error::from_raw_os_error(libc::EPERM);
            let why = "the device was opened before fork(2), by the parent: open it again in the child";
            return Err(RegisterError::Unsupported { range, why, source });
        }
        Ok(())
    }
}

// SAFETY: an explicit region covers exactly `range` (page-aligned, so no rounding by the device)
// with the rights of `access`; the one addition, local write with remote write, is what verbs
// demand and lets only this process's own work requests write where a peer may write anyway. An
// implicit region reaches further, but only through an lkey, which names nothing to a peer and
// only this process's own work requests use; remote rights are never given implicitly. A region
// ends by `deregister` alone (or with the device, when nothing can reach it any more): `Region`
// has no `Drop`.
unsafe impl Provider for Verbs {
    type Mr = Region;
    type Key = Key;

    fn name(&self) -> &'static str {
        "verbs"
    }

    fn caps(&self) -> ProviderCaps {
        self.caps
    }

    fn key(&self, region: &Region) -> Key {
        region.key()
    }

    unsafe fn register(&self, range: PageRange, access: Access) -> Result<Region, RegisterError> {
        self.admit(range)?;
        let refused = |source| {
            error::refused(range, source, self.caps.max_region_bytes, || self.pd.context().is_gone())
        };
        if let (Some(implicit), false) = (&self.implicit, access.is_remote()) {
            return implicit.key(access).map(Region::shared).map_err(refused);
        }
        let windows = self.options.memory_windows;
        // SAFETY: the caller's promise.
        let mr = unsafe { self.pd.register(Some(range), access, self.explicit_paging(), windows) };
        mr.map(Region::own).map_err(refused)
    }

    fn deregister(&self, region: Region) -> Result<(), DeregisterFailed<Region>> {
        let Some(mr) = region.into_own() else { return Ok(()) };
        let Err((mr, source)) = self.pd.deregister(mr) else { return Ok(()) };
        let unreachable = matches!(source.raw_os_error(), Some(libc::EIO | libc::ENODEV));
        if unreachable && self.pd.context().is_gone() {
            // The kernel has freed every region of a device that went away.
            self.lost_with_device.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        Err(DeregisterFailed { mr: Region::own(mr), source })
    }

    fn prefetch(&self, key: Key, range: PageRange, access: Access) -> io::Result<()> {
        match self.paging {
            Paging::Pinned => Err(io::ErrorKind::Unsupported.into()),
            _ => Self::prefetch(self, key, range, access),
        }
    }

    fn everything_key(&self, access: Access) -> Option<Key> {
        // An error is found again, and reported, by the first explicit registration.
        self.implicit.as_ref().filter(|_| !access.is_remote())?.key(access).ok()
    }
}
