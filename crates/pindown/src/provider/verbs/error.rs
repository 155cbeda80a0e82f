//! Errors, and what a failed call's errno means.

use std::io;

use pindown_core::{Limit, PageRange, RegisterError};

use super::limits;

pub use crate::sys::verbs::LoadError;

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// libibverbs is not there.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No device has this name.
    #[error(
        "there is no verbs device {name:?} (there are: {found:?}); list them with `ibv_devices` or `pindown doctor`, or make one with `rdma link add rxe0 type rxe netdev NETDEV`"
    )]
    NoDevice {
        /// The name asked for.
        name: String,
        /// The names of those that are.
        found: Vec<String>,
    },
    /// On-demand paging was asked for and the device has none.
    #[error(
        "the device {device} lacks on-demand paging: use Paging::Pinned with a monitor, or a device and kernel that have it (`ibv_devinfo -v`: odp_caps; soft-RoCE has it in current kernels, not in 6.12)"
    )]
    NoOnDemandPaging {
        /// Its name.
        device: String,
    },
    /// Implicit on-demand paging was asked for and the device has only the explicit kind or none.
    #[error("the device {device} lacks implicit on-demand paging: use Paging::OnDemand")]
    NoImplicitPaging {
        /// Its name.
        device: String,
    },
    /// Memory windows were asked for and the device has none.
    #[error("the device {device} lacks memory windows: use Builder::revoke_on_put instead")]
    NoMemoryWindows {
        /// Its name.
        device: String,
    },
    /// A protection domain pointer that cannot be one.
    #[error("the protection domain is null or has no context")]
    NullDomain,
    /// A call failed.
    #[error("{what} failed on {device}")]
    Io {
        /// The call.
        what: &'static str,
        /// The device's name.
        device: String,
        /// Its error.
        source: io::Error,
    },
}

/// What `ibv_reg_mr(3)` means by its errno. `gone` asks whether the device still exists; `longest`
/// is the longest region known to work.
pub(super) fn refused(
    range: PageRange,
    source: io::Error,
    longest: u64,
    gone: impl Fn() -> bool,
) -> RegisterError {
    match source.raw_os_error().unwrap_or(0) {
        libc::EIO | libc::ENODEV if gone() => RegisterError::DeviceGone { source },
        libc::ENOMEM => out_of_memory(range, source),
        libc::ENOSPC => limit(range, Limit::Slots, None, "hold fewer regions (max_mr)", source),
        libc::EAGAIN | libc::EINTR | libc::EBUSY => RegisterError::Busy { range, source },
        libc::EINVAL if range.len_bytes() as u64 > longest => too_long(range, longest, source),
        libc::EFAULT => unsupported(
            range,
            "it is not mapped throughout, or not writable as the access asks (or memory without pages, such as another device's)",
            source,
        ),
        libc::EPERM | libc::EACCES => unsupported(range, "the access is not permitted", source),
        libc::EOPNOTSUPP => unsupported(range, "the device does not register this kind of memory", source),
        libc::EINVAL => unsupported(range, "the device refuses the length or the access", source),
        _ => RegisterError::Io { range, source },
    }
}

/// What `ibv_advise_mr(3)` means by its errno.
pub(super) fn explain_advice(source: io::Error) -> io::Error {
    match source.raw_os_error() {
        Some(libc::EOPNOTSUPP) => io::Error::new(
            io::ErrorKind::Unsupported,
            "rdma-core or its driver for this device offers no ibv_advise_mr: take a newer one (soft-RoCE: 57)",
        ),
        _ => source,
    }
}

/// A region longer than the device takes.
pub(super) fn too_long(range: PageRange, longest: u64, source: io::Error) -> RegisterError {
    limit(range, Limit::RegionBytes, Some(longest), "register it in pieces (provider::verbs::pieces)", source)
}

/// ENOMEM is RLIMIT_MEMLOCK when the pinned pages would pass it (ib_umem_get,
/// drivers/infiniband/core/umem.c), else memory.
fn out_of_memory(range: PageRange, source: io::Error) -> RegisterError {
    match limits::memlock_bytes() {
        Some(most) if limits::pinned_bytes() + range.len_bytes() as u64 > most => {
            limit(range, Limit::Memlock, Some(most), "raise `ulimit -l` or give CAP_IPC_LOCK", source)
        }
        _ => limit(range, Limit::Memory, None, "free memory, or hold fewer or shorter regions", source),
    }
}

fn limit(
    range: PageRange,
    limit: Limit,
    value: Option<u64>,
    remedy: &'static str,
    source: io::Error,
) -> RegisterError {
    RegisterError::Limit { range, limit, value, remedy, source }
}

fn unsupported(range: PageRange, why: &'static str, source: io::Error) -> RegisterError {
    RegisterError::Unsupported { range, why, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(errno: i32, gone: bool) -> RegisterError {
        let range = PageRange::new(0x10000, 0x20000).unwrap();
        refused(range, io::Error::from_raw_os_error(errno), 0x8000, || gone)
    }

    #[test]
    fn errnos_become_typed_errors() {
        assert!(matches!(of(libc::EIO, true), RegisterError::DeviceGone { .. }));
        assert!(matches!(of(libc::EIO, false), RegisterError::Io { .. }));
        assert!(matches!(of(libc::EAGAIN, false), RegisterError::Busy { .. }));
        assert!(matches!(of(libc::EFAULT, false), RegisterError::Unsupported { .. }));
        let long = of(libc::EINVAL, false);
        assert!(matches!(long, RegisterError::Limit { limit: Limit::RegionBytes, value: Some(0x8000), .. }));
        assert!(of(libc::ENOMEM, false).evicting_may_help() && of(libc::ENOSPC, false).evicting_may_help());
    }
}
