//! The hit where nothing is out of the ordinary: what most requests are.
//!
//! It decides everything before it takes its hold and calls nothing, so it is short, and a caller
//! that it is inlined into keeps its registers. Whatever it does not handle (no record yet, more than
//! one hold at a time, a use to be written down, counted holds, ...) [`Inner::hit`] does.

use super::Inner;
use crate::hold::{self, Held};
use crate::interval_map::{FAST, FAST_PAGES_MAX, Want};
use crate::{ADDRESS_SPACE_END, Access, PAGE_SHIFT, PAGE_SIZE, Provider};

impl<P: Provider> Inner<P> {
    /// `None`: ask [`hit`](Self::hit).
    #[inline(always)]
    pub(super) fn hit_fast(&self, addr: usize, len: usize, access: Access) -> Option<Held<P>> {
        let flat = self.flat.as_ref()?;
        let table = flat.table.view();
        // Wraps for an empty request. What ends past the address space is covered by no region.
        let last = len.wrapping_sub(1);
        if addr >= ADDRESS_SPACE_END || last >= SHORT || !self.is_current() {
            return None;
        }
        // Early, so that what follows finds registers free.
        let record = hold::present_record()?;
        let (hits, slot) = (record.hits_for(&self.counter)?, record.hinted_slot()?);
        let more_pages = ((addr & (PAGE_SIZE - 1)) + last) >> PAGE_SHIFT;
        let page = (addr >> PAGE_SHIFT) as u64;
        let found = table.find(Want::new(page, more_pages as u64 + 1, access.class() | FAST))?;
        let region = flat.slab.get(found.entry.index()).filter(|r| !r.is_use_due(&self.clock))?;
        let held = Held::try_slot(region, slot, found.at, found.entry.word())?;
        hold::ThreadRecord::count(hits);
        Some(held)
    }
}

/// Longer requests, in bytes, are left to [`Inner::hit`].
const SHORT: usize = 1 << 30;

const _: () = assert!(ADDRESS_SPACE_END.is_power_of_two());
const _: () = assert!((SHORT / PAGE_SIZE) < FAST_PAGES_MAX as usize);
