//! `pindown_registration`: a hold, kept by value in the caller's memory so that a hit allocates nothing.

use std::ffi::c_void;
use std::mem;
use std::mem::MaybeUninit;
use std::ptr;

use pindown::Registration;

use crate::access::access;
use crate::boundary::{enter, enter_or, enter_unit, place};
use crate::cache::pindown_cache;
use crate::failure::{Failure, Result};
use crate::handle::get;
use crate::key::pindown_key;
use crate::provider::Any;
use crate::status::pindown_status::{self, *};

/// "pd.held!" in a structure that holds.
const HELD: u64 = u64::from_le_bytes(*b"pd.held!");

/// A held registration: registered until it is put. Lives in your memory and may be moved (copied), but is put once:
/// of two copies only one holds.
#[derive(Debug)]
#[repr(C)]
pub struct pindown_registration {
    /// What goes into the work request.
    pub key: pindown_key,
    /// The library's.
    pub private_tag: u64,
    /// The library's.
    pub private_hold: [*mut c_void; 2],
}

type Hold = Registration<Any>;

impl pindown_registration {
    /// One that holds nothing.
    pub(crate) fn none() -> Self {
        Self { key: pindown_key::default(), private_tag: 0, private_hold: [ptr::null_mut(); 2] }
    }

    #[inline(always)]
    pub(crate) fn of(hold: Hold) -> Self {
        let key = hold.key();
        // SAFETY: a registration is two pointers (the compiler checks the size); as pointers they keep their
        // provenance through the caller's memory, and `take` makes them a registration again, once.
        let private_hold = unsafe { mem::transmute::<Hold, [*mut c_void; 2]>(hold) };
        Self { key, private_tag: HELD, private_hold }
    }

    /// The hold, out of the structure.
    #[inline(always)]
    fn take(&mut self) -> Option<Hold> {
        if mem::replace(&mut self.private_tag, 0) != HELD {
            return None;
        }
        let hold = mem::replace(&mut self.private_hold, [ptr::null_mut(); 2]);
        // SAFETY: the tag says that `of` wrote these pointers, and that they were not taken from here since;
        // that no other copy of the structure was put is the header's demand.
        Some(unsafe { mem::transmute::<[*mut c_void; 2], Hold>(hold) })
    }

    /// The hold, left where it is.
    pub(crate) fn hold(&self) -> Result<&Hold> {
        if self.private_tag != HELD {
            return Err(not_held());
        }
        // SAFETY: as in `take`; the same two words, aligned as pointers, borrowed no longer than the structure.
        Ok(unsafe { &*(&raw const self.private_hold).cast::<Hold>() })
    }

    /// Puts, if it holds.
    pub(crate) fn put(&mut self) {
        drop(self.take());
    }
}

#[cold]
fn not_held() -> Box<Failure> {
    Failure::new(PINDOWN_E_NOT_HELD, "the registration is not held: it was put already, or never acquired")
}

/// The structure that `registration` leads to.
fn opened(registration: Option<&pindown_registration>) -> Result<&Hold> {
    registration.ok_or_else(|| Failure::null("registration"))?.hold()
}

/// The registration that serves `len` bytes at `addr` with `access` (PINDOWN_* rights); made if there is none.
/// Registering blocks this thread and no other, except those that wait for the same range. Put it with pindown_put
/// once the transfer has *completed*, not only been submitted.
///
/// While it is held the device may read, and with write rights change, the memory when you (or a peer) tell it to.
/// On failure `registration` holds nothing, and may be put without harm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pindown_acquire(
    cache: Option<&pindown_cache>,
    addr: *const c_void,
    len: usize,
    access: u32,
    registration: Option<&mut MaybeUninit<pindown_registration>>,
) -> pindown_status {
    enter_unit(|| {
        let out = place(registration, "registration")?;
        let result = get(cache).and_then(|cache| {
            let access = self::access(access)?;
            // SAFETY: the header passes `acquire`'s demand on to the caller.
            Ok(unsafe { cache.acquire(addr.cast(), len, access) }?)
        });
        finish(out, result)
    })
}

#[inline(always)]
fn finish(out: &mut mem::MaybeUninit<pindown_registration>, result: Result<Hold>) -> Result<()> {
    match result {
        Ok(hold) => out.write(pindown_registration::of(hold)),
        Err(failure) => {
            out.write(pindown_registration::none());
            return Err(failure);
        }
    };
    Ok(())
}

/// As pindown_acquire, but never registers: PINDOWN_NOT_FOUND when nothing registered serves. No lock and no
/// allocation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pindown_lookup(
    cache: Option<&pindown_cache>,
    addr: *const c_void,
    len: usize,
    access: u32,
    registration: Option<&mut MaybeUninit<pindown_registration>>,
) -> pindown_status {
    enter(|| {
        let out = place(registration, "registration")?;
        out.write(pindown_registration::none());
        let Some(hold) = get(cache)?.lookup(addr.cast(), len, self::access(access)?) else {
            return Ok(PINDOWN_NOT_FOUND);
        };
        out.write(pindown_registration::of(hold));
        Ok(PINDOWN_OK)
    })
}

/// Puts a registration, from any thread. One store; never deregisters unless the registration is used once
/// (pindown_registration_is_cached). PINDOWN_E_NOT_HELD: it was put already.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_put(registration: Option<&mut pindown_registration>) -> pindown_status {
    enter_unit(|| {
        let structure = registration.ok_or_else(|| Failure::null("registration"))?;
        structure.take().map(drop).ok_or_else(not_held)
    })
}

/// Holds once more, in `copy`. Each is put on its own.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_registration_clone(
    registration: Option<&pindown_registration>,
    copy: Option<&mut MaybeUninit<pindown_registration>>,
) -> pindown_status {
    enter_unit(|| {
        let out = place(copy, "copy")?;
        finish(out, opened(registration).cloned())
    })
}

/// Whether the memory is known to have changed since it was registered: transfers move the old pages. It stays
/// registered until it is put. True on failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_registration_is_stale(registration: Option<&pindown_registration>) -> bool {
    enter_or(true, || Ok(opened(registration)?.is_stale()))
}

/// Whether later requests can be served by it. False: its memory cannot be kept coherent, so it was made for this
/// request and is deregistered when it is put. False on failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_registration_is_cached(registration: Option<&pindown_registration>) -> bool {
    enter_or(false, || Ok(opened(registration)?.is_cached()))
}

/// All that is registered, in whole pages; covers the request. NULL for what you do not want.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_registration_range(
    registration: Option<&pindown_registration>,
    addr: Option<&mut MaybeUninit<*mut c_void>>,
    len: Option<&mut MaybeUninit<usize>>,
) -> pindown_status {
    enter_unit(|| {
        let range = opened(registration)?.range();
        crate::cache::tell(addr, ptr::with_exposed_provenance_mut(range.start()));
        crate::cache::tell(len, range.len_bytes());
        Ok(())
    })
}

/// The rights that are registered, PINDOWN_*; they serve the request. 0 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_registration_access(registration: Option<&pindown_registration>) -> u32 {
    enter_or(0, || Ok(opened(registration)?.access().bits().into()))
}
