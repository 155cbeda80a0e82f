//! The monitor object, its import, and the thread behind it.

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::OnceLock;

use pindown::PageRange;
use pindown_preload::ledger::Ledger;
use pindown_preload::settings::wants_summary;
use pindown_preload::sys::{at_exit, block_signals, symbol_of, tell};

use super::abi::{CLASS_MEM_MONITOR, ExportOps, Fid, FidMemMonitor, VERSION};
use crate::session::Session;

pub(super) type FiOpen =
    unsafe extern "C" fn(u32, *const c_char, *mut c_void, usize, u64, *mut *mut Fid, *mut c_void) -> c_int;

static SESSION: OnceLock<Session> = OnceLock::new();

static EXPORT_OPS: ExportOps =
    ExportOps { size: size_of::<ExportOps>(), start, stop, subscribe, unsubscribe, valid };

/// Imports the monitor into libfabric, once a process; the result of that once.
pub(super) fn import_once() -> c_int {
    static RESULT: OnceLock<c_int> = OnceLock::new();
    *RESULT.get_or_init(|| guarded(import).unwrap_or(-libc::EFAULT))
}

/// 0, or a negative errno.
fn import() -> c_int {
    if std::env::var("FI_MR_CACHE_MONITOR").is_ok_and(|v| v == "disabled") {
        return -libc::EPERM;
    }
    let Some(open) = real_fi_open() else { return -libc::ENOSYS };
    let ledger = match Ledger::from_environment() {
        Ok(Some(ledger)) => ledger,
        Ok(None) => return -libc::EPERM,
        Err(why) => {
            eprintln!("pindown_fabric: libfabric keeps its own memory monitor: {why}");
            return -libc::ENOSYS;
        }
    };
    let session = SESSION.get_or_init(|| Session::new(ledger));
    // SAFETY: `open` is libfabric's.
    let (result, monitor) = unsafe { bind_monitor(open) };
    match result {
        0 => begin(session, monitor),
        error => eprintln!("pindown_fabric: libfabric does not take the memory monitor (error {error})"),
    }
    result
}

pub(super) fn real_fi_open() -> Option<FiOpen> {
    // SAFETY: fi_open@FABRIC_1.5, whose signature is this.
    symbol_of(c"libfabric.so.1", c"fi_open").map(|f| unsafe { std::mem::transmute::<_, FiOpen>(f) })
}

/// What `fi_import` (an inline function) does.
///
/// # Safety
///
/// `open` is libfabric's `fi_open`.
unsafe fn bind_monitor(open: FiOpen) -> (c_int, *mut FidMemMonitor) {
    let fid = Fid { fclass: CLASS_MEM_MONITOR, context: ptr::null_mut(), ops: ptr::null_mut() };
    let monitor = FidMemMonitor { fid, export_ops: &EXPORT_OPS, import_ops: ptr::null() };
    let monitor = Box::into_raw(Box::new(monitor)); // libfabric's for the rest of the process
    let mut cache = ptr::null_mut();
    let null = ptr::null_mut();
    // SAFETY: arguments as fi_import passes them. After success `cache` and its table of functions are live,
    // and both functions are there (fi_ext.h calls them without a look).
    let result = unsafe {
        match open(VERSION, c"mr_cache".as_ptr(), null, 0, 0, &raw mut cache, null) {
            0 => {
                let ops = &*(*cache).ops;
                let bound = ops.bind.map_or(-libc::ENOSYS, |bind| bind(cache, monitor.cast(), 0));
                ops.close.map(|close| close(cache));
                bound
            }
            error => error,
        }
    };
    (result, monitor)
}

fn begin(session: &'static Session, monitor: *mut FidMemMonitor) {
    let monitor = monitor.expose_provenance();
    let notify = move |range: PageRange| {
        let monitor: *mut FidMemMonitor = ptr::with_exposed_provenance_mut(monitor);
        let addr = ptr::without_provenance(range.start());
        // SAFETY: imported, so its table is libfabric's; leaked, and libfabric stays loaded. No lock is held.
        unsafe { ((*(*monitor).import_ops).notify)(monitor, addr, range.len_bytes()) };
    };
    let run = move || {
        block_signals();
        loop {
            session.turn(notify);
        }
    };
    // Without it registrations go at their next use.
    _ = std::thread::Builder::new().name("pindown-fabric".into()).spawn(run);
    if wants_summary() {
        _ = at_exit(print_summary);
    }
}

extern "C" fn print_summary() {
    if let Some(session) = SESSION.get().filter(|s| !s.is_forked()) {
        tell(&format!("pindown_fabric[{}]: {session}", std::process::id()));
    }
}

fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

fn ask<T>(otherwise: T, question: impl FnOnce(&Session) -> T) -> T {
    SESSION.get().and_then(|session| guarded(|| question(session))).unwrap_or(otherwise)
}

/// It runs since the import.
extern "C" fn start(_: *mut FidMemMonitor) -> c_int {
    if SESSION.get().is_some_and(|s| !s.is_forked()) { 0 } else { -libc::ENOSYS }
}

/// libfabric starts it again for the next domain.
extern "C" fn stop(_: *mut FidMemMonitor) {}

extern "C" fn subscribe(_: *mut FidMemMonitor, addr: *const c_void, len: usize) -> c_int {
    if ask(false, |s| s.subscribe(addr.addr(), len)) { 0 } else { -libc::ENOSYS }
}

extern "C" fn unsubscribe(_: *mut FidMemMonitor, addr: *const c_void, len: usize) {
    ask((), |s| s.unsubscribe(addr.addr(), len));
}

extern "C" fn valid(_: *mut FidMemMonitor, addr: *const c_void, len: usize) -> bool {
    ask(false, |s| s.is_valid(addr.addr(), len))
}
