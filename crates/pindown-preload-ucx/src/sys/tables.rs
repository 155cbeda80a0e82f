//! The page tables that belong to registration caches: each lies inside its cache's object.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::ucx::ucs;

/// More caches than a process has.
const MOST: usize = 64;

static CACHES: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];

/// Whether `table` is part of a known cache.
pub(super) fn is_known(table: usize) -> bool {
    for place in &CACHES {
        match place.load(Ordering::Acquire) {
            0 => return false,
            cache if (cache..cache + cache_bytes()).contains(&table) => return true,
            _ => {}
        }
    }
    true // the list is full: any table may be a cache's
}

/// A cache that registrations are asked of.
pub(super) fn learn(cache: usize) {
    for place in &CACHES {
        let known = place.load(Ordering::Acquire);
        if known == cache {
            return;
        }
        let before = place.compare_exchange(0, cache, Ordering::AcqRel, Ordering::Acquire);
        if before.is_ok() || before == Err(cache) {
            return;
        }
    }
}

/// The size of a cache's object, as UCX's own description of the class has it (`ucs_class_t` of
/// `<ucs/type/class.h>`: name, size, ...). 320 in 1.13, 304 in 1.18.
fn cache_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| ucs(c"ucs_rcache_t_class").map_or(320, size_of_class))
}

fn size_of_class(class: NonNull<c_void>) -> usize {
    // SAFETY: a live, constant structure of libucs, whose second word is the size.
    let size = unsafe { class.cast::<usize>().add(1).read() };
    size.clamp(64, 4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_known_by_its_cache_and_a_full_list_knows_all() {
        assert!(!is_known(0x10_0000));
        learn(0x10_0000);
        learn(0x10_0000);
        assert!(is_known(0x10_0000) && is_known(0x10_0000 + 100) && !is_known(0x20_0000));
        (2..=MOST).for_each(|i| learn(i * 0x10_0000));
        assert!(is_known(MOST * 0x10_0000 + 8) && is_known(0x99));
    }
}
