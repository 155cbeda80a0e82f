//! UCX's registration cache as a subject of pindown's benchmark.

use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::process::ExitCode;
use std::ptr::NonNull;

use pindown_bench::{Settings, Subject, serve};

/// UCX's `ucs_rcache_t`.
#[repr(C)]
struct Rcache {
    _opaque: [u8; 0],
}

// Of `shim.c`, with the same types.
unsafe extern "C" {
    fn shim_open(register_ns: c_long, rcache: *mut *mut Rcache) -> c_int;
    fn shim_close(rcache: *mut Rcache);
    fn shim_get(rcache: *mut Rcache, addr: *mut c_void, len: usize) -> *mut c_void;
    fn shim_put(rcache: *mut Rcache, region: *mut c_void);
    safe fn shim_made() -> c_ulong;
    safe fn shim_made_bytes() -> c_ulong;
    fn shim_key(region: *const c_void) -> u64;
    fn shim_covers(region: *const c_void, addr: usize, len: usize) -> c_int;
}

struct Ucx(NonNull<Rcache>);

// SAFETY: the cache may be used by any thread at any time (it locks).
unsafe impl Send for Ucx {}
// SAFETY: as above.
unsafe impl Sync for Ucx {}

/// A held region.
struct Hold(NonNull<c_void>);

// SAFETY: a region may be put by any thread.
unsafe impl Send for Hold {}

impl Drop for Ucx {
    fn drop(&mut self) {
        // SAFETY: opened by `open`; the benchmark puts all holds before.
        unsafe { shim_close(self.0.as_ptr()) }
    }
}

impl Subject for Ucx {
    type Hold = Hold;

    fn open(settings: &Settings) -> Result<Self, String> {
        let mut rcache = std::ptr::null_mut();
        // SAFETY: writes the pointer.
        let status = unsafe { shim_open(settings.latency.as_nanos() as c_long, &raw mut rcache) };
        NonNull::new(rcache).filter(|_| status == 0).map(Self).ok_or(format!("ucs_rcache_create: {status}"))
    }

    #[inline(always)]
    fn get(&self, addr: usize, len: usize) -> Hold {
        // SAFETY: an open cache; addresses are only numbers to it.
        let region = unsafe { shim_get(self.0.as_ptr(), std::ptr::without_provenance_mut(addr), len) };
        Hold(NonNull::new(region).expect("a registration that does nothing"))
    }

    #[inline(always)]
    fn read(hold: &Hold) -> u64 {
        // SAFETY: a held region.
        unsafe { shim_key(hold.0.as_ptr()) }
    }

    #[inline(always)]
    fn put(&self, hold: Hold) {
        // SAFETY: got from this cache, and put once.
        unsafe { shim_put(self.0.as_ptr(), hold.0.as_ptr()) }
    }

    fn registrations(&self) -> u64 {
        shim_made()
    }

    fn registered_bytes(&self) -> u64 {
        shim_made_bytes()
    }

    /// UCX deregisters in the next request that misses, which the benchmark makes.
    fn settle(&self) {}

    fn invalidate(&self, _addr: usize, _len: usize) -> bool {
        false
    }

    fn covers(hold: &Hold, addr: usize, len: usize) -> Option<bool> {
        // SAFETY: a held region.
        Some(unsafe { shim_covers(hold.0.as_ptr(), addr, len) } != 0)
    }

    fn describe(&self) -> String {
        "UCX".into()
    }
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    match serve::<Ucx>(&name, &Settings::default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("pindown-bench-ucx: {why}");
            ExitCode::from(3)
        }
    }
}
