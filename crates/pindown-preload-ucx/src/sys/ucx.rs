//! The feed of this process, and the call by which UCX is told.

use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use pindown::PageRange;
use pindown_preload::ledger::Ledger;
use pindown_preload::settings::wants_summary;
use pindown_preload::sys::{at_exit, next_symbol, symbol_of, tell};

use crate::feed::Feed;

type VmMunmap = unsafe extern "C" fn(*mut c_void, usize);

/// The feed, and UCX's dispatcher.
pub(super) struct Fed {
    pub(super) feed: Feed,
    vm_munmap: VmMunmap,
}

impl Fed {
    /// `None`: off, which was told once.
    pub(super) fn get() -> Option<&'static Self> {
        static FED: OnceLock<Option<Fed>> = OnceLock::new();
        let fed = FED.get_or_init(|| catch_unwind(Self::start).ok().flatten()).as_ref();
        if fed.is_some() && wants_summary_once() {
            _ = at_exit(print_summary);
        }
        fed
    }

    fn start() -> Option<Self> {
        // SAFETY: ucm_vm_munmap of <ucm/api/ucm.h>, whose signature is this.
        let vm_munmap = symbol_of(c"libucm.so.0", c"ucm_vm_munmap")
            .map(|f| unsafe { std::mem::transmute::<NonNull<c_void>, VmMunmap>(f) })?;
        match Ledger::from_environment() {
            Ok(ledger) => Some(Self { feed: Feed::new(ledger?), vm_munmap }),
            Err(why) => {
                eprintln!("pindown_ucx: UCX is left with its own events: {why}");
                None
            }
        }
    }

    /// Tells UCX that `range` was unmapped. It takes its own word for it and does nothing to the memory.
    pub(super) fn dispatch(&self, range: PageRange) {
        let addr = ptr::without_provenance_mut(range.start());
        // SAFETY: calls the handlers that are registered for the event; nothing is read at the address.
        unsafe { (self.vm_munmap)(addr, range.len_bytes()) };
    }
}

fn wants_summary_once() -> bool {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get().is_none() && wants_summary() && ONCE.set(()).is_ok()
}

extern "C" fn print_summary() {
    if let Some(fed) = Fed::get().filter(|fed| !fed.feed.is_forked()) {
        tell(&format!("pindown_ucx[{}]: {}", std::process::id(), fed.feed));
    }
}

/// A function of libucs.
pub(super) fn ucs(name: &CStr) -> Option<NonNull<c_void>> {
    symbol_of(c"libucs.so.0", name).or_else(|| next_symbol(name))
}

/// `None`: it panicked, which the panic's message has told.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}
