//! [`Floor`]: what the machine takes for the least that a cache must do.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::subject::{Settings, Subject};
use crate::workload::STRIDE;

/// A line of memory a region, which a hit loads; no hold, no registration.
#[derive(Debug)]
pub struct Floor {
    lines: Vec<Line>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Line(AtomicU64);

impl Subject for Floor {
    type Hold = u64;
    const IS_FLOOR: bool = true;

    fn open(settings: &Settings) -> Result<Self, String> {
        let lines = settings.regions.max(1).next_power_of_two();
        // Other than zero, so that each page is there.
        Ok(Self { lines: (0..lines as u64).map(|n| Line(AtomicU64::new(n + 1))).collect() })
    }

    #[inline(always)]
    fn get(&self, addr: usize, _len: usize) -> u64 {
        // Regions begin at a multiple of all their lengths.
        self.lines[(addr / STRIDE) & (self.lines.len() - 1)].0.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn read(hold: &u64) -> u64 {
        *hold
    }

    #[inline(always)]
    fn put(&self, _hold: u64) {}

    fn registrations(&self) -> u64 {
        0
    }

    fn registered_bytes(&self) -> u64 {
        0
    }

    fn settle(&self) {}

    fn invalidate(&self, _addr: usize, _len: usize) -> bool {
        false
    }

    fn covers(_hold: &u64, _addr: usize, _len: usize) -> Option<bool> {
        None
    }

    fn describe(&self) -> String {
        "the machine".into()
    }
}
