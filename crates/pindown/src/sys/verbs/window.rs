//! [`Window`]: memory windows of type 1, an rkey of their own over part of a region.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use pindown_core::Access;

use super::bindings::*;
use super::library::check;
use super::memory::{Mr, Pd};
use super::queue::Qp;

/// A memory window. Freed on drop, which ends its rkey.
#[derive(Debug)]
pub(crate) struct Window {
    raw: Option<NonNull<ibv_mw>>,
    pd: Arc<Pd>,
}

// SAFETY: the window is used through `&mut` or by value only.
unsafe impl Send for Window {}
// SAFETY: a shared reference reads the rkey alone.
unsafe impl Sync for Window {}

impl Window {
    pub(crate) fn alloc(pd: &Arc<Pd>) -> io::Result<Self> {
        // SAFETY: the domain is live, and so is its context's table.
        let raw = unsafe {
            let alloc = (*pd.context().raw()).ops.alloc_mw.ok_or_else(unsupported)?;
            alloc(pd.raw(), IBV_MW_TYPE_1)
        };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw: Some(raw), pd: pd.clone() })
    }

    /// Posts the request that opens the window over `len_bytes` at `addr` of `mr`; its completion carries `id`.
    pub(crate) fn bind(
        &mut self,
        qp: &Qp,
        id: u64,
        mr: &Mr,
        (addr, len_bytes): (u64, u64),
        access: Access,
    ) -> io::Result<()> {
        let mut flags = 0;
        for (right, flag) in [
            (Access::REMOTE_READ, IBV_ACCESS_REMOTE_READ),
            (Access::REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE),
            (Access::REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC),
        ] {
            flags |= if access.contains(right) { flag } else { 0 };
        }
        let info = ibv_mw_bind_info { mr: mr.raw(), addr, length: len_bytes, mw_access_flags: flags };
        // SAFETY: all-zero is a value of this plain struct.
        let mut bind: ibv_mw_bind = unsafe { std::mem::zeroed() };
        (bind.wr_id, bind.send_flags, bind.bind_info) = (id, IBV_SEND_SIGNALED, info);
        let raw = self.raw.ok_or_else(unsupported)?.as_ptr();
        // SAFETY: live queue pair, window and region; the struct outlives the call.
        check(unsafe {
            let f = (*self.pd.context().raw()).ops.bind_mw.ok_or_else(unsupported)?;
            f(qp.raw(), raw, &mut bind)
        })
    }

    /// The key of the last bind.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: it is live.
        self.raw.map_or(0, |raw| unsafe { raw.as_ref() }.rkey)
    }

    /// Ends the rkey: a peer's request with it fails from now on.
    pub(crate) fn free(&mut self) -> io::Result<()> {
        let Some(raw) = self.raw else { return Ok(()) };
        // SAFETY: allocated by this and not freed yet.
        check(unsafe {
            let free = (*self.pd.context().raw()).ops.dealloc_mw.ok_or_else(unsupported)?;
            free(raw.as_ptr())
        })?;
        self.raw = None;
        Ok(())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Err(error) = self.free() {
            tracing::warn!(%error, "a memory window could not be freed: its rkey stays valid");
        }
    }
}

fn unsupported() -> io::Error {
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}
