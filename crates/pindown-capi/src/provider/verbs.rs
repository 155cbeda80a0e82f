//! The verbs provider, on a protection domain that the application has, or on a device by name.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

use pindown::provider::verbs::{OpenError, Options, Paging, Verbs};

use super::any::Any;
use super::pindown_provider;
use crate::boundary::enter_unit;
use crate::failure::{Failure, Result};
use crate::handle::give_new;
use crate::status::pindown_status::{self, *};

/// How memory stays reachable for a verbs device.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum pindown_paging {
    /// Pages are pinned; a monitor keeps the cache coherent.
    PINDOWN_PAGING_PINNED = 0,
    /// On-demand paging: registrations follow the page table.
    PINDOWN_PAGING_ON_DEMAND = 1,
    /// One on-demand registration for all local access; explicit ones for remote rights.
    PINDOWN_PAGING_IMPLICIT = 2,
    /// The first that the device offers of implicit, on-demand, pinned.
    PINDOWN_PAGING_AUTO = 3,
}

fn options(paging: u32) -> Result<Options> {
    use pindown_paging::*;
    let named = [
        (PINDOWN_PAGING_PINNED, Paging::Pinned),
        (PINDOWN_PAGING_ON_DEMAND, Paging::OnDemand),
        (PINDOWN_PAGING_IMPLICIT, Paging::Implicit),
        (PINDOWN_PAGING_AUTO, Paging::Auto),
    ];
    let found = named.into_iter().find(|(number, _)| *number as u32 == paging);
    let (_, paging) = found.ok_or_else(|| Failure::invalid(format!("no pindown_paging is {paging}")))?;
    Ok(Options::default().paging(paging))
}

fn failed(error: &OpenError) -> Box<Failure> {
    let status = if matches!(error, OpenError::NullDomain) { PINDOWN_E_INVALID } else { PINDOWN_E_DEVICE };
    Failure::of(status, error)
}

fn boxed(verbs: std::result::Result<Verbs, OpenError>) -> Result<Box<Any>> {
    verbs.map(|verbs| Box::new(Any::Verbs(Box::new(verbs)))).map_err(|error| failed(&error))
}

/// Registrations on `pd`, a `struct ibv_pd *` of the libibverbs that this process has loaded. It and its context stay
/// the application's, and must live until the cache is closed and everything is put. `paging` is a pindown_paging.
/// Each registration is an ibv_reg_mr(3); its pindown_key has the lkey and rkey.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pindown_provider_verbs(
    pd: *mut c_void,
    paging: u32,
    provider: Option<&mut MaybeUninit<*mut pindown_provider>>,
) -> pindown_status {
    enter_unit(|| {
        give_new(provider, || {
            let options = options(paging)?;
            // SAFETY: NULL is refused; else the header demands a live protection domain for as long.
            boxed(unsafe { Verbs::from_pd(pd, options) })
        })
    })
}

/// Opens the verbs device called `device` (ibv_devices(1)) and makes a protection domain on it, which is
/// pindown_cache_ibv_pd of the cache that is built.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pindown_provider_verbs_open(
    device: *const c_char,
    paging: u32,
    provider: Option<&mut MaybeUninit<*mut pindown_provider>>,
) -> pindown_status {
    enter_unit(|| {
        give_new(provider, || {
            let options = options(paging)?;
            if device.is_null() {
                return Err(Failure::null("device"));
            }
            // SAFETY: not NULL, and a string by the header.
            let name = unsafe { CStr::from_ptr(device) };
            boxed(Verbs::open(&name.to_string_lossy(), options))
        })
    })
}
