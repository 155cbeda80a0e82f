//! First requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::{Round, World};
use crate::subject::{Settings, Subject};
use crate::sys::{ns_since, pin_to, processors};
use crate::workload::shuffled;

pub(super) fn prepare<S: Subject>(settings: &Settings, regions: usize) -> Result<(Round, String), String> {
    let settings = settings.clone();
    let what = S::open(&settings)?.describe();
    let order = shuffled(regions, 42);
    if let Some(&processor) = processors().first() {
        pin_to(processor);
    }
    let round = move || {
        if S::IS_FLOOR {
            return Ok(read_modify_write(regions));
        }
        // A cache anew each round; small ones more than once.
        let times = (50_000 / regions).max(1);
        let mut ns = 0.0;
        for _ in 0..times {
            let world = World::<S>::empty(&settings, regions)?;
            let started = Instant::now();
            world.insert(&order);
            ns += ns_since(started);
        }
        Ok(ns / (regions * times) as f64)
    };
    Ok((Box::new(round), what))
}

/// What a lock without contention takes.
fn read_modify_write(times: usize) -> f64 {
    let word = AtomicU64::new(0);
    let started = Instant::now();
    for _ in 0..times {
        word.fetch_add(1, Ordering::AcqRel);
        word.fetch_sub(1, Ordering::AcqRel);
    }
    ns_since(started) / times as f64
}
