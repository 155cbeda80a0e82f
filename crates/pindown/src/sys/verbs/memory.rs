//! [`Pd`] and [`Mr`]: protection domains, owned or lent, and memory regions.

use std::collections::HashMap;
use std::io;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pindown_core::{Access, PageRange};

use super::bindings::*;
use super::device::Context;
use super::library::{Lib, check};

/// A protection domain. Freed on drop unless it was lent.
#[derive(Debug)]
pub(crate) struct Pd {
    raw: NonNull<ibv_pd>,
    owned: bool,
    /// Live regions that allow windows, by lkey: a key is all that users have of a region.
    windowed: Mutex<HashMap<u32, Mr>>,
    // Dropped, and so closed, after `Drop` below freed the domain.
    context: Context,
}

// SAFETY: libibverbs is thread-safe, and the pointer is not replaced.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

/// A memory region. Dropping it leaks it: only [`Pd::deregister`] gives it back.
#[derive(Debug)]
pub(crate) struct Mr {
    raw: NonNull<ibv_mr>,
    lkey: u32,
    rkey: u32,
}

// SAFETY: the keys are copies; the pointer is used by `deregister` and `Window::bind`, which
// libibverbs allows from any thread.
unsafe impl Send for Mr {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl Sync for Mr {}

/// Whether the pages are pinned or follow the page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paging {
    Pinned,
    OnDemand,
}

/// `ibv_advise_mr(3)`'s advices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    Prefetch,
    PrefetchWrite,
    PrefetchNoFault,
}

impl Mr {
    pub(crate) fn lkey(&self) -> u32 {
        self.lkey
    }
    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }
    pub(crate) fn raw(&self) -> *mut ibv_mr {
        self.raw.as_ptr()
    }
}

impl Pd {
    pub(crate) fn alloc(context: Context) -> io::Result<Self> {
        // SAFETY: the context is open.
        let raw = NonNull::new(unsafe { (context.lib().alloc_pd)(context.raw()) });
        Ok(Self {
            raw: raw.ok_or_else(io::Error::last_os_error)?,
            owned: true,
            windowed: Mutex::default(),
            context,
        })
    }

    /// # Safety
    ///
    /// `raw` is a live protection domain that outlives what is returned, and so is its context.
    pub(crate) unsafe fn lent(lib: &'static Lib, raw: NonNull<ibv_pd>) -> Option<Self> {
        // SAFETY: it is live.
        let context = NonNull::new(unsafe { raw.as_ref() }.context)?;
        // SAFETY: the caller's promise covers the context.
        let context = unsafe { Context::lent(lib, context) };
        Some(Self { raw, owned: false, windowed: Mutex::default(), context })
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn raw(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }

    /// Registers `range`; all of the address space when `None` (implicit on-demand paging).
    ///
    /// # Safety
    ///
    /// What the device may write stays free of Rust references for as long as the region lives
    /// and work that names its keys can run.
    pub(crate) unsafe fn register(
        &self,
        range: Option<PageRange>,
        access: Access,
        paging: Paging,
        windows: bool,
    ) -> io::Result<Mr> {
        let (addr, len) = range.map_or((0, usize::MAX), |r| (r.start(), r.len_bytes()));
        let flags = access_flags(access, paging, windows);
        // SAFETY: the domain is live; the kernel checks the range itself.
        let raw = NonNull::new(unsafe { self.reg_mr(addr, len, flags) });
        let raw = raw.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: a fresh region.
        let (lkey, rkey) = unsafe { (raw.as_ref().lkey, raw.as_ref().rkey) };
        if windows {
            self.windowed().insert(lkey, Mr { raw, lkey, rkey });
        }
        Ok(Mr { raw, lkey, rkey })
    }

    /// Calls `f` with the live region that has this lkey and allows windows. It is not
    /// deregistered meanwhile.
    pub(crate) fn with_windowed<R>(&self, lkey: u32, f: impl FnOnce(&Mr) -> R) -> Option<R> {
        self.windowed().get(&lkey).map(f)
    }

    fn windowed(&self) -> MutexGuard<'_, HashMap<u32, Mr>> {
        self.windowed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Safety
    ///
    /// As [`register`](Self::register).
    unsafe fn reg_mr(&self, addr: usize, len: usize, flags: u32) -> *mut ibv_mr {
        let lib = self.context.lib();
        match lib.reg_mr_iova2 {
            // SAFETY: the domain is live.
            Some(f) => unsafe { f(self.raw(), addr as *mut _, len, addr as u64, flags) },
            None => {
                // An old library would pass the optional flag on to a kernel that refuses it.
                let strict = flags & !IBV_ACCESS_RELAXED_ORDERING;
                // SAFETY: the domain is live.
                unsafe { (lib.reg_mr)(self.raw(), addr as *mut _, len, strict as i32) }
            }
        }
    }

    /// Gives a region back, or hands it back.
    pub(crate) fn deregister(&self, mr: Mr) -> Result<(), (Mr, io::Error)> {
        let windowed = self.windowed().remove(&mr.lkey);
        // SAFETY: `mr` is of a domain of this library and is used up here; the table's copy of it
        // went first.
        let answer = check(unsafe { (self.context.lib().dereg_mr)(mr.raw()) });
        if let (Err(_), Some(copy)) = (&answer, windowed) {
            self.windowed().insert(mr.lkey, copy);
        }
        answer.map_err(|e| (mr, e))
    }

    /// Whether an on-demand region of `bytes` is accepted, tried on address space that is
    /// reserved for the purpose.
    pub(crate) fn can_register_on_demand(&self, bytes: u64) -> bool {
        let Ok(len) = usize::try_from(bytes) else { return false };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return false;
        }
        let range = PageRange::covering(at as usize, len).ok();
        // SAFETY: a read-only region over memory that nobody else knows of.
        let tried = range.map(|r| unsafe { self.register(Some(r), Access::READ, Paging::OnDemand, false) });
        let works = tried.is_some_and(|made| made.is_ok_and(|mr| self.deregister(mr).is_ok()));
        // SAFETY: mapped above, and nothing refers to it.
        unsafe { libc::munmap(at, len) };
        works
    }

    /// `ibv_advise_mr(3)` with the flush flag: returns when it is done.
    pub(crate) fn advise(&self, sge: super::Sge, advice: Advice) -> io::Result<()> {
        let unsupported = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        let at = std::mem::offset_of!(verbs_context, advise_mr);
        let table = self.context.extended(at).ok_or_else(unsupported)?;
        let advice = match advice {
            Advice::Prefetch => IBV_ADVISE_MR_ADVICE_PREFETCH,
            Advice::PrefetchWrite => IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
            Advice::PrefetchNoFault => IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
        };
        let mut sge = sge.raw();
        // SAFETY: the entry is inside the table; the domain is live and the list has one element.
        check(unsafe {
            let f = (&raw const (*table).advise_mr).read().ok_or_else(unsupported)?;
            f(self.raw(), advice, IBV_ADVISE_MR_FLAG_FLUSH, &mut sge, 1)
        })
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: allocated by this; queues made on it hold an Arc of it, so are gone. With
            // regions left (leaked `Mr`s) it answers EBUSY and the kernel frees all at exit.
            let ret = check(unsafe { (self.context.lib().dealloc_pd)(self.raw()) });
            if let Err(error) = ret {
                tracing::warn!(%error, "a protection domain still has memory regions: left to process exit");
            }
        }
    }
}

/// The device's words for `access`. Remote write and atomic rights need local write
/// (`ibv_reg_mr(3)`).
fn access_flags(access: Access, paging: Paging, windows: bool) -> u32 {
    let mut flags = 0;
    let mut add = |when: bool, flag: u32| flags |= if when { flag } else { 0 };
    add(access.is_write(), IBV_ACCESS_LOCAL_WRITE);
    add(access.contains(Access::REMOTE_READ), IBV_ACCESS_REMOTE_READ);
    add(access.contains(Access::REMOTE_WRITE), IBV_ACCESS_REMOTE_WRITE);
    add(access.contains(Access::REMOTE_ATOMIC), IBV_ACCESS_REMOTE_ATOMIC);
    add(access.contains(Access::RELAXED_ORDERING), IBV_ACCESS_RELAXED_ORDERING);
    add(windows, IBV_ACCESS_MW_BIND);
    add(paging == Paging::OnDemand, IBV_ACCESS_ON_DEMAND);
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_write_brings_local_write_and_nothing_else() {
        let pinned = |a| access_flags(a, Paging::Pinned, false);
        assert_eq!(pinned(Access::READ), 0);
        assert_eq!(pinned(Access::REMOTE_READ), IBV_ACCESS_REMOTE_READ);
        assert_eq!(pinned(Access::REMOTE_WRITE), IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE);
        assert_eq!(pinned(Access::RELAXED_ORDERING), IBV_ACCESS_RELAXED_ORDERING);
        assert_eq!(
            access_flags(Access::READ, Paging::OnDemand, true),
            IBV_ACCESS_ON_DEMAND | IBV_ACCESS_MW_BIND
        );
    }
}
