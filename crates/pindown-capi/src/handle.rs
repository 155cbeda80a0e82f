//! Handles: what C holds by pointer.
//!
//! Each is two words, a tag that names its kind and one pointer, so that a handle of the wrong kind can be
//! looked at safely and refused. A freed one loses its tag; seeing that in memory that was freed is luck.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::boundary::place;
use crate::failure::{Failure, Result};
use crate::status::pindown_status::PINDOWN_E_HANDLE;

/// The tag of no kind.
const FREED: u64 = 0;

/// One kind of handle.
pub(crate) trait Kind: Sized {
    /// What it stands for; one non-null word.
    type Body: Send;
    const TAG: u64;
    const NAME: &'static str;
    fn new(body: Self::Body) -> Self;
    fn tag(&self) -> &AtomicU64;
    fn body(&self) -> &Self::Body;
    fn body_mut(&mut self) -> &mut Self::Body;
    fn into_body(self) -> Self::Body;
}

/// Defines kinds of handles. cbindgen does not look inside, so C knows them by name only (cbindgen.toml).
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident($body:ty) = $tag:literal) => {
        $(#[$doc])*
        #[repr(C)]
        pub struct $name {
            tag: std::sync::atomic::AtomicU64,
            body: $body,
        }

        const _: () = assert!(size_of::<$name>() == 16, "all kinds look alike from outside");

        impl crate::handle::Kind for $name {
            type Body = $body;
            const TAG: u64 = u64::from_le_bytes(*$tag);
            const NAME: &'static str = stringify!($name);
            fn new(body: $body) -> Self {
                Self { tag: Self::TAG.into(), body }
            }
            #[inline(always)]
            fn tag(&self) -> &std::sync::atomic::AtomicU64 {
                &self.tag
            }
            #[inline(always)]
            fn body(&self) -> &$body {
                &self.body
            }
            fn body_mut(&mut self) -> &mut $body {
                &mut self.body
            }
            fn into_body(self) -> $body {
                self.body
            }
        }
    };
}
pub(crate) use handle;

#[inline(always)]
fn is<K: Kind>(handle: &K) -> bool {
    handle.tag().load(Ordering::Relaxed) == K::TAG
}

/// What `handle` stands for.
#[inline(always)]
pub(crate) fn get<K: Kind>(handle: Option<&K>) -> Result<&K::Body> {
    match handle {
        Some(handle) if is(handle) => Ok(handle.body()),
        other => Err(refused(other)),
    }
}

/// The same without words: allocates nothing.
pub(crate) fn peek<K: Kind>(handle: &K) -> Option<&K::Body> {
    is(handle).then(|| handle.body())
}

/// The same, to change it.
pub(crate) fn get_mut<K: Kind>(handle: Option<&mut K>) -> Result<&mut K::Body> {
    match handle {
        Some(handle) if is(handle) => Ok(handle.body_mut()),
        other => Err(refused(other.as_deref())),
    }
}

#[cold]
fn refused<K: Kind>(handle: Option<&K>) -> Box<Failure> {
    let Some(handle) = handle else { return Failure::null(K::NAME) };
    let was = if handle.tag().load(Ordering::Relaxed) == FREED { "was freed" } else { "is something else" };
    let message = format!("what was passed as {} {was}: pass the pointer that made it", K::NAME);
    Failure::new(PINDOWN_E_HANDLE, message)
}

/// A new handle, for C to free.
pub(crate) fn give<K: Kind>(out: &mut MaybeUninit<*mut K>, body: K::Body) {
    out.write(Box::into_raw(Box::new(K::new(body))));
}

/// As [`give`], once `make` succeeded; else NULL.
pub(crate) fn give_new<K: Kind>(
    out: Option<&mut MaybeUninit<*mut K>>,
    make: impl FnOnce() -> Result<K::Body>,
) -> Result<()> {
    let out = place(out, "the place for the result")?;
    out.write(ptr::null_mut());
    give(out, make()?);
    Ok(())
}

/// Takes a handle back from C. NULL is nothing, as with `free(3)`.
pub(crate) fn take<K: Kind>(handle: Option<Box<K>>) -> Result<Option<K::Body>> {
    let Some(handle) = handle else { return Ok(None) };
    if !is::<K>(&handle) {
        let failure = refused(Some(&*handle));
        // Not ours to free.
        let _ = Box::into_raw(handle);
        return Err(failure);
    }
    handle.tag().store(FREED, Ordering::Relaxed);
    Ok(Some(handle.into_body()))
}

/// Frees a handle.
pub(crate) fn free<K: Kind>(handle: Option<Box<K>>) -> crate::status::pindown_status {
    crate::boundary::enter_unit(|| take(handle).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    handle!(One(Box<u32>) = b"test.one");
    handle!(Other(Box<String>) = b"test.oth");

    #[test]
    fn only_its_own_kind_opens_a_handle() {
        let mut out = MaybeUninit::uninit();
        give::<One>(&mut out, Box::new(7));
        // SAFETY: `give` wrote it.
        let one: *mut One = unsafe { out.assume_init() };
        // SAFETY: both kinds are two words, and the wrong one is not used as such; `one` is live.
        let (right, wrong) = unsafe { (&*one, &*one.cast::<Other>()) };
        assert_eq!(**get(Some(right)).unwrap(), 7);
        assert_eq!(get(Some(wrong)).unwrap_err().status, PINDOWN_E_HANDLE);
        assert!(get::<One>(None).unwrap_err().message.contains("NULL"));
        // SAFETY: `one` came from a box; a refused take leaves it alone.
        let refused = take(Some(unsafe { Box::from_raw(one.cast::<Other>()) }));
        assert!(refused.is_err());
        // SAFETY: it is still the box's, by the line above.
        let taken = take(Some(unsafe { Box::from_raw(one) })).unwrap();
        assert_eq!(taken.as_deref(), Some(&7));
    }
}
