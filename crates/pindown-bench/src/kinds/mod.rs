//! How each kind of figure is measured.

mod changes;
mod hits;
mod inserts;
mod memory;
mod stalls;
mod truth;

use crate::figure::Kind;
use crate::subject::{Settings, Subject};
use crate::sys::Memory;
use crate::workload::{STRIDE, len_of, shuffled};

/// Measures one round.
pub(crate) type Round = Box<dyn FnMut() -> Result<f64, String>>;

/// Prepares what the rounds of `kind` need.
pub(crate) fn prepare<S: Subject>(kind: Kind, settings: &Settings) -> Result<(Round, String), String> {
    match kind {
        Kind::Hits { regions, order, threads } => hits::prepare::<S>(settings, regions, order, threads),
        Kind::Handover => hits::handover::<S>(settings),
        Kind::Inserts(regions) => inserts::prepare::<S>(settings, regions),
        Kind::UnmapUnregistered => changes::unregistered::<S>(settings),
        Kind::UnmapRegistered => changes::registered::<S>(settings),
        Kind::UnmapMany => changes::many::<S>(settings),
        Kind::UnmapBesideHits => changes::beside_hits::<S>(settings),
        Kind::Huge => changes::huge::<S>(settings),
        Kind::MemoryDense => memory::dense::<S>(settings),
        Kind::MemoryIsolated => memory::isolated::<S>(settings),
        Kind::Stall { beside, longest } => stalls::prepare::<S>(settings, beside, longest),
        Kind::Windows => truth::windows::<S>(settings),
        Kind::Check => truth::check::<S>(settings),
    }
}

/// A subject and the memory that it has registered.
pub(crate) struct World<S> {
    pub(crate) subject: S,
    pub(crate) memory: Memory,
}

impl<S: Subject> World<S> {
    /// With `regions` regions registered, in random order.
    pub(crate) fn filled(settings: &Settings, regions: usize) -> Result<Self, String> {
        let world = Self::empty(settings, regions)?;
        world.insert(&shuffled(regions, 42));
        world.subject.settle();
        Ok(world)
    }

    pub(crate) fn empty(settings: &Settings, regions: usize) -> Result<Self, String> {
        let subject = S::open(&Settings { regions, ..settings.clone() })?;
        Ok(Self { subject, memory: Memory::reserve(regions * STRIDE)? })
    }

    pub(crate) fn insert(&self, order: &[u32]) {
        for &n in order {
            let hold = self.subject.get(self.memory.at() + n as usize * STRIDE, len_of(n as usize));
            self.subject.put(hold);
        }
    }
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
