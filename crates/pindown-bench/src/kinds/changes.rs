//! Memory that is unmapped or invalidated.

use std::time::Instant;

use super::hits::hit_meanwhile;
use super::{Round, World, median};
use crate::subject::{Settings, Subject};
use crate::sys::{Memory, ns_since, pin_to, processors};

/// Bytes of what is mapped and unmapped over and over.
const SMALL: usize = 16 << 10;
const REGIONS: usize = 1000;
/// Of [`many`].
const MANY: usize = 20_000;
const GIB: usize = 1 << 30;

fn pin_here() {
    if let Some(&processor) = processors().first() {
        pin_to(processor);
    }
}

fn small() -> Result<Memory, String> {
    let memory = Memory::new(SMALL)?;
    memory.touch();
    Ok(memory)
}

fn request<S: Subject>(subject: &S, addr: usize, len: usize) {
    subject.put(subject.get(addr, len));
}

pub(super) fn unregistered<S: Subject>(settings: &Settings) -> Result<(Round, String), String> {
    let world = World::<S>::filled(settings, REGIONS)?;
    let what = world.subject.describe();
    pin_here();
    let round = move || {
        let _world = &world;
        let times: Result<Vec<f64>, String> = (0..2000).map(|_| Ok(small()?.unmap())).collect();
        Ok(median(&mut times?))
    };
    Ok((Box::new(round), what))
}

pub(super) fn registered<S: Subject>(settings: &Settings) -> Result<(Round, String), String> {
    let world = World::<S>::filled(settings, REGIONS)?;
    let what = world.subject.describe();
    pin_here();
    let round = move || {
        let one = || {
            let memory = small()?;
            request(&world.subject, memory.at(), SMALL);
            Ok(memory.unmap())
        };
        let times: Result<Vec<f64>, String> = (0..1000).map(|_| one()).collect();
        Ok(median(&mut times?))
    };
    Ok((Box::new(round), what))
}

/// 8 KiB registered of every 16 KiB.
fn fill<S: Subject>(subject: &S, memory: &Memory) {
    (0..memory.len() / SMALL).for_each(|n| request(subject, memory.at() + n * SMALL, SMALL / 2));
}

pub(super) fn many<S: Subject>(settings: &Settings) -> Result<(Round, String), String> {
    let subject = S::open(&Settings { regions: MANY, ..settings.clone() })?;
    let what = subject.describe();
    pin_here();
    let round = move || {
        let without = Memory::new(MANY * SMALL)?.unmap_raw();
        let (memory, other) = (Memory::new(MANY * SMALL)?, small()?);
        fill(&subject, &memory);
        subject.settle();
        let started = Instant::now();
        memory.unmap();
        request(&subject, other.at(), SMALL);
        let ns = ns_since(started) - without;
        subject.settle();
        Ok(ns.max(0.0))
    };
    Ok((Box::new(round), what))
}

/// The cache's work for a change of `memory`: its own, or what an unmapping takes more than `without`.
fn change<S: Subject>(subject: &S, memory: Memory, without: f64) -> f64 {
    let started = Instant::now();
    if subject.invalidate(memory.at(), memory.len()) {
        return ns_since(started);
    }
    (memory.unmap() - without).max(0.0)
}

pub(super) fn beside_hits<S: Subject>(settings: &Settings) -> Result<(Round, String), String> {
    let world = World::<S>::filled(settings, REGIONS)?;
    let what = world.subject.describe();
    pin_here();
    let round = move || {
        hit_meanwhile(&world, REGIONS, || {
            let plain: Result<Vec<f64>, String> = (0..300).map(|_| Ok(small()?.unmap_raw())).collect();
            let without = median(&mut plain?);
            let one = || {
                let memory = small()?;
                request(&world.subject, memory.at(), SMALL);
                Ok(change(&world.subject, memory, without))
            };
            let times: Result<Vec<f64>, String> = (0..300).map(|_| one()).collect();
            Ok(median(&mut times?))
        })
    };
    Ok((Box::new(round), what))
}

pub(super) fn huge<S: Subject>(settings: &Settings) -> Result<(Round, String), String> {
    let subject = S::open(&Settings { regions: 1, ..settings.clone() })?;
    let what = subject.describe();
    pin_here();
    let round = move || {
        let one = || {
            let memory = Memory::reserve(GIB)?;
            let started = Instant::now();
            request(&subject, memory.at(), GIB);
            let inserted = ns_since(started);
            let changed = change(&subject, memory, 0.0);
            subject.settle();
            Ok(inserted + changed)
        };
        let times: Result<Vec<f64>, String> = (0..50).map(|_| one()).collect();
        Ok(median(&mut times?))
    };
    Ok((Box::new(round), what))
}
