//! The functions in front of libibverbs'. No panic leaves them: the program gets the real call's answer.

use std::ffi::{c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::Ordering;

use pindown_preload::sys::{errno, set_errno};

use super::abi::{IbvContext, IbvMr, IbvPd};
use super::domain::Domain;
use super::process::Process;
use super::real::Real;
use super::shell::{Behind, Shell};
use crate::asked::{Passed, cacheable};

/// In front of `ibv_reg_mr(3)`.
///
/// # Safety
///
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut IbvPd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut IbvMr {
    // SAFETY: the caller's promise.
    unsafe { register(pd, (addr, length), addr.addr() as u64, access as c_uint) }
}

/// In front of `ibv_reg_mr_iova2`, which `<infiniband/verbs.h>` calls for access that the compiler does not
/// know, and for optional flags.
///
/// # Safety
///
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut IbvPd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut IbvMr {
    // libibverbs' own ibv_reg_mr gets here too. Its caller found it past us, and will deregister past us.
    if let Some(real) = Real::get().filter(|real| real.is_calling()) {
        // SAFETY: the caller's promise.
        return unsafe { real.register(pd, (addr, length), iova, access) };
    }
    // SAFETY: the caller's promise.
    unsafe { register(pd, (addr, length), iova, access) }
}

/// In front of `ibv_dereg_mr(3)`.
///
/// # Safety
///
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut IbvMr) -> c_int {
    let process = Process::get();
    let figures = &process.figures;
    let shell = guarded(|| process.take_shell(mr.addr())).flatten();
    let Some((shell, domain, behind)) = shell else {
        let Some(real) = Real::get() else { return libc::ENOSYS };
        // SAFETY: not one of ours, so libibverbs', as the caller promises.
        return figures.deregistered.time(process.timed, || unsafe { (real.dereg_mr)(mr) });
    };
    match behind {
        Behind::Cached(held) => {
            guarded(|| figures.put.time(process.timed, || drop(held)));
            domain.held.fetch_sub(1, Ordering::AcqRel);
            0
        }
        Behind::Private(at) => {
            let Some(real) = Real::get() else { return libc::ENOSYS };
            // SAFETY: registered by `rereg` for this shell alone, which is out of the table.
            let result = unsafe { (real.dereg_mr)(ptr::with_exposed_provenance_mut(at)) };
            match result {
                0 => _ = domain.held.fetch_sub(1, Ordering::AcqRel),
                _ => _ = process.insert_shell(shell, domain, behind),
            }
            result
        }
    }
}

/// In front of `ibv_rereg_mr(3)`.
///
/// # Safety
///
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut IbvMr,
    flags: c_int,
    pd: *mut IbvPd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let Some(real) = Real::get() else { return INPUT };
    let process = Process::get();
    match guarded(|| process.take_shell(mr.addr())).flatten() {
        None => match real.rereg_mr {
            // SAFETY: the caller's promise.
            Some(rereg) => unsafe { rereg(mr, flags, pd, addr, length, access) },
            None => INPUT,
        },
        Some((mut shell, domain, behind)) => {
            let wanted = Wanted { flags, pd, at: (addr, length), access };
            // SAFETY: the caller's promise.
            let (result, behind) = unsafe { reregister(real, &mut shell, behind, wanted) };
            process.insert_shell(shell, domain, behind);
            result
        }
    }
}

/// In front of `ibv_dealloc_pd(3)`, which fails while anything is registered in the domain.
///
/// # Safety
///
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut IbvPd) -> c_int {
    let process = Process::get();
    let known = guarded(|| process.known_domain(pd)).flatten();
    if known.is_some_and(|domain| domain.is_held()) {
        set_errno(libc::EBUSY);
        return libc::EBUSY;
    }
    close(process, |at, _| at == pd.addr());
    // SAFETY: the caller's promise; the cache has nothing registered there any more.
    Real::get().map_or(libc::ENOSYS, |real| unsafe { (real.dealloc_pd)(pd) })
}

/// In front of `ibv_close_device(3)`.
///
/// # Safety
///
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut IbvContext) -> c_int {
    close(Process::get(), |_, domain| domain.is_some_and(|d| d.context == context.addr()));
    // SAFETY: the caller's promise; the caches of its domains have nothing registered any more.
    Real::get().map_or(-1, |real| unsafe { (real.close_device)(context) })
}

/// `IBV_REREG_MR_ERR_INPUT`: the old registration is as it was.
const INPUT: c_int = -1;

/// # Safety
///
/// As for `ibv_reg_mr_iova2`.
unsafe fn register(pd: *mut IbvPd, at: (*mut c_void, usize), iova: u64, access: c_uint) -> *mut IbvMr {
    let process = Process::get();
    let timed = process.timed;
    // SAFETY: the caller's promise.
    let served =
        guarded(|| process.figures.served.time_if(timed, || unsafe { serve(process, pd, at, iova, access) }));
    let why = match served {
        Some(Ok(mr)) => return mr,
        Some(Err(why)) => why,
        None => Passed::Refused,
    };
    process.figures.pass(why);
    let Some(real) = Real::get() else {
        set_errno(libc::ENOSYS);
        return ptr::null_mut();
    };
    // SAFETY: the caller's promise.
    let register = || unsafe { real.register(pd, at, iova, access) };
    process.figures.passed.time(timed, || {
        let mr = register();
        // What is cached and unused must not be what leaves no room.
        match mr.is_null() && errno() == libc::ENOMEM && shrink_all(process) {
            true => register(),
            false => mr,
        }
    })
}

/// # Safety
///
/// As for `ibv_reg_mr_iova2`.
unsafe fn serve(
    process: &Process,
    pd: *mut IbvPd,
    at: (*mut c_void, usize),
    iova: u64,
    access: c_uint,
) -> Result<*mut IbvMr, Passed> {
    let rights = cacheable(at.0.addr(), at.1, iova, access)?;
    let domain = process.domain(pd).ok_or(Passed::NoCache)?;
    // SAFETY: the program, by registering this memory with these rights, promises what `acquire` asks.
    let held = unsafe { domain.cache.acquire(at.0.cast(), at.1, rights) }.map_err(|_| Passed::Refused)?;
    let shell = Shell::new(pd, at, access, &held);
    domain.held.fetch_add(1, Ordering::AcqRel);
    Ok(process.insert_shell(shell, domain, Behind::Cached(held)))
}

/// What `ibv_rereg_mr(3)` is asked for.
struct Wanted {
    flags: c_int,
    pd: *mut IbvPd,
    at: (*mut c_void, usize),
    access: c_int,
}

/// # Safety
///
/// As for `ibv_rereg_mr`.
unsafe fn reregister(real: &Real, shell: &mut Shell, behind: Behind, wanted: Wanted) -> (c_int, Behind) {
    const TRANSLATION: c_int = 1;
    const PD: c_int = 2;
    const ACCESS: c_int = 4;
    if wanted.flags == 0 || wanted.flags & !(TRANSLATION | PD | ACCESS) != 0 {
        set_errno(libc::EINVAL);
        return (INPUT, behind);
    }
    let changes = |flag| wanted.flags & flag != 0;
    let pd = if changes(PD) { wanted.pd } else { shell.mr.pd };
    let at = if changes(TRANSLATION) { wanted.at } else { (shell.mr.addr, shell.mr.length) };
    let access = if changes(ACCESS) { wanted.access } else { shell.access };
    // SAFETY: the caller's promise.
    let fresh = unsafe { real.register(pd, at, at.0.addr() as u64, access as c_uint) };
    if fresh.is_null() {
        return (INPUT, behind);
    }
    if let Behind::Private(old) = behind {
        // SAFETY: registered by an earlier call for this shell alone.
        unsafe { (real.dereg_mr)(ptr::with_exposed_provenance_mut(old)) };
    }
    // SAFETY: libibverbs' answer, live until it is deregistered.
    shell.mr = unsafe { *fresh };
    shell.access = access;
    (0, Behind::Private(fresh.expose_provenance()))
}

/// Ends the caches of the chosen domains.
fn close(process: &Process, chosen: impl Fn(usize, Option<&Domain>) -> bool) {
    guarded(|| {
        for domain in process.take_domains(chosen) {
            let (stats, _) = domain.close();
            process.figures.add(&stats);
        }
    });
}

fn shrink_all(process: &Process) -> bool {
    guarded(|| process.all_domains().iter().for_each(|d| _ = d.cache.shrink(0))).is_some()
}

/// `None`: it panicked, which the panic's message has told.
fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}
