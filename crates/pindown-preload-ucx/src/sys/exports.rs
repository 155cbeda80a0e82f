//! The functions in front of libucs'.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use pindown::PageRange;

use super::tables;
use super::ucx::{Fed, guarded, ucs};

thread_local! {
    /// In `ucs_rcache_get`, or in what we call: lookups from there are part of one that was looked after.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// `UCS_ERR_NO_RESOURCE`.
const NO_RESOURCE: c_int = -2;

type Word = *mut c_void;
type RcacheGet = unsafe extern "C" fn(Word, Word, usize, Word, Word, Word, Word, Word) -> c_int;
type PgtableLookup = unsafe extern "C" fn(*const c_void, usize) -> Word;

/// In front of `ucs_rcache_get(rcache, address, length, ...)`. UCX 1.13 has six arguments and 1.18 seven, all of
/// one word; eight are passed on, since what a caller did not pass is a readable word of its stack frame
/// (System V ABI, AAPCS64) that the real function does not look at.
///
/// # Safety
///
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucs_rcache_get(
    rcache: Word,
    address: Word,
    length: usize,
    a: Word,
    b: Word,
    c: Word,
    d: Word,
    e: Word,
) -> c_int {
    static REAL: OnceLock<Option<RcacheGet>> = OnceLock::new();
    let find = || {
        let found = ucs(c"ucs_rcache_get")?;
        // SAFETY: ucs_rcache_get, see above.
        Some(unsafe { transmute::<NonNull<c_void>, RcacheGet>(found) })
    };
    let Some(real) = REAL.get_or_init(find) else { return NO_RESOURCE };
    tables::learn(rcache.addr());
    let outer = INSIDE.replace(true);
    let range = PageRange::covering(address.addr(), length);
    let looked = range.ok().filter(|_| !outer).and_then(|range| {
        let fed = Fed::get()?;
        guarded(|| (fed, fed.feed.before_get(range, &mut |r| fed.dispatch(r))))
    });
    // SAFETY: the caller's promise.
    let status = unsafe { real(rcache, address, length, a, b, c, d, e) };
    if let Some((fed, get)) = looked {
        guarded(|| fed.feed.after_get(&get));
    }
    INSIDE.set(outer);
    status
}

/// In front of `ucs_pgtable_lookup`, by which libucp's fast path looks into the cache. Other tables of this kind
/// (of memory types) are left alone.
///
/// # Safety
///
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucs_pgtable_lookup(pgtable: *const c_void, address: usize) -> Word {
    static REAL: OnceLock<Option<PgtableLookup>> = OnceLock::new();
    let find = || {
        let found = ucs(c"ucs_pgtable_lookup")?;
        // SAFETY: ucs_pgtable_lookup(const ucs_pgtable_t *, ucs_pgt_addr_t), <ucs/datastruct/pgtable.h>.
        Some(unsafe { transmute::<NonNull<c_void>, PgtableLookup>(found) })
    };
    let Some(real) = REAL.get_or_init(find) else { return ptr::null_mut() };
    let may_find = INSIDE.get() || !tables::is_known(pgtable.addr()) || look(address);
    match may_find {
        // SAFETY: the caller's promise.
        true => unsafe { real(pgtable, address) },
        // The caller registers by ucs_rcache_get what it does not find.
        false => ptr::null_mut(),
    }
}

fn look(address: usize) -> bool {
    let (Ok(range), Some(fed)) = (PageRange::covering(address, 1), Fed::get()) else { return true };
    INSIDE.set(true);
    let may_find = guarded(|| fed.feed.before_find(range, &mut |r| fed.dispatch(r)));
    INSIDE.set(false);
    may_find.unwrap_or(false)
}
