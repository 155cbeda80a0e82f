//! What is registered, and whether answers are right.

use pindown::MonitorChoice;

use super::{Round, World};
use crate::subject::{Settings, Subject};
use crate::sys::Memory;
use crate::workload::{Random, STRIDE, len_of};

const WINDOWS: usize = 2000;
const WINDOW: usize = 64 << 10;
const STEP: usize = 4 << 10;

pub(super) fn windows<S: Subject>(settings: &Settings) -> Result<(Round, String), String> {
    let settings = Settings { widen: true, ..settings.clone() };
    let what = S::open(&settings)?.describe();
    let round = move || {
        let len = (WINDOWS - 1) * STEP + WINDOW;
        let (subject, memory) = (S::open(&settings)?, Memory::new(len)?);
        (0..WINDOWS).for_each(|n| subject.put(subject.get(memory.at() + n * STEP, WINDOW)));
        Ok(subject.registered_bytes() as f64 / len as f64)
    };
    Ok((Box::new(round), what))
}

const REGIONS: usize = 4096;

/// Every answer covers what was asked for; what is cached is not registered again; what was unmapped is.
pub(super) fn check<S: Subject>(settings: &Settings) -> Result<(Round, String), String> {
    let what = S::open(settings)?.describe();
    let settings = settings.clone();
    let round = move || {
        let world = World::<S>::filled(&settings, REGIONS)?;
        let (mut wrong, mut random) = (0u64, Random::new(5));
        for _ in 0..REGIONS {
            let n = random.below(REGIONS);
            wrong += ask(&world.subject, world.memory.at() + n * STRIDE, len_of(n), false);
        }
        for _ in 0..256 {
            let memory = Memory::new(WINDOW)?;
            wrong += ask(&world.subject, memory.at(), WINDOW, true);
            wrong += ask(&world.subject, memory.at(), WINDOW, false);
            // What is mapped next gets the same address.
            let at = memory.at();
            memory.unmap();
            if matches!(settings.monitor, MonitorChoice::Manual) {
                world.subject.invalidate(at, WINDOW); // the program's part of that bargain
            }
        }
        Ok(wrong as f64)
    };
    Ok((Box::new(round), what))
}

fn ask<S: Subject>(subject: &S, addr: usize, len: usize, registers: bool) -> u64 {
    let before = subject.registrations();
    let hold = subject.get(addr, len);
    let covers = S::covers(&hold, addr, len);
    subject.put(hold);
    let registered = subject.registrations() != before;
    u64::from(covers.is_some_and(|covers| !covers || registered != registers))
}
