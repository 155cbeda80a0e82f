//! The page tables that belong to registration caches.

use std::sync::atomic::{AtomicUsize, Ordering};

/// More caches than a process has.
const MOST: usize = 64;

static KNOWN: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];

/// Whether a cache looks there.
pub(super) fn is_known(table: usize) -> bool {
    for place in &KNOWN {
        match place.load(Ordering::Acquire) {
            0 => return false,
            known if known == table => return true,
            _ => {}
        }
    }
    true // the list is full: any table may be a cache's
}

/// A cache looks there.
pub(super) fn learn(table: usize) {
    for place in &KNOWN {
        let before = place.compare_exchange(0, table, Ordering::AcqRel, Ordering::Acquire);
        if before.is_ok() || before == Err(table) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_known_once_and_a_full_list_knows_all() {
        assert!(!is_known(0x100));
        learn(0x100);
        learn(0x100);
        assert!(is_known(0x100) && !is_known(0x200));
        (2..=MOST).for_each(|i| learn(i * 0x100));
        assert!(is_known(MOST * 0x100) && is_known(0x99));
    }
}
