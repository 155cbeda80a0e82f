//! Resident memory.

use super::{Round, World};
use crate::subject::{Settings, Subject};
use crate::sys::{Memory, resident_bytes};
use crate::workload::shuffled;

const DENSE: usize = 1_000_000;
const ISOLATED: usize = 50_000;
/// Farther apart than any table's unit.
const APART: usize = 4 << 20;

/// What is resident is known once a process: the first round measures, the others repeat it.
fn once(measure: impl FnOnce() -> f64 + 'static) -> Round {
    let (mut measure, mut value) = (Some(measure), 0.0);
    Box::new(move || {
        if let Some(measure) = measure.take() {
            value = measure();
        }
        Ok(value)
    })
}

pub(super) fn dense<S: Subject>(settings: &Settings) -> Result<(Round, String), String> {
    let world = World::<S>::empty(settings, DENSE)?;
    let (what, order) = (world.subject.describe(), shuffled(DENSE, 42));
    let measure = move || {
        let before = resident_bytes();
        world.insert(&order);
        (resident_bytes() - before - world.subject.fixed_bytes() as f64) / DENSE as f64
    };
    Ok((once(measure), what))
}

pub(super) fn isolated<S: Subject>(settings: &Settings) -> Result<(Round, String), String> {
    let subject = S::open(&Settings { regions: ISOLATED, ..settings.clone() })?;
    let (what, memory) = (subject.describe(), Memory::reserve(ISOLATED * APART)?);
    let measure = move || {
        let before = resident_bytes();
        (0..ISOLATED).for_each(|n| subject.put(subject.get(memory.at() + n * APART, 4096)));
        (resident_bytes() - before - subject.fixed_bytes() as f64) / ISOLATED as f64
    };
    Ok((once(measure), what))
}
