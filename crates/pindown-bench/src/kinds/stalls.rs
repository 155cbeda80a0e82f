//! How long one hit can take while another thread does something slow.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::{Round, World};
use crate::figure::Beside;
use crate::subject::{Settings, Subject};
use crate::sys::{Memory, pin_to, processors};
use crate::workload::{Order, STRIDE, len_of};

const REGIONS: usize = 1000;
const ROUND: Duration = Duration::from_millis(1500);
const PAGE: usize = 4096;
/// Regions invalidated at a time, one of every two pages.
const MANY: usize = 20_000;

pub(super) fn prepare<S: Subject>(
    settings: &Settings,
    beside: Beside,
    longest: bool,
) -> Result<(Round, String), String> {
    let latency = Duration::from_millis(u64::from(beside == Beside::Registering));
    let quick = World::<S>::filled(&Settings { latency, ..settings.clone() }, REGIONS)?;
    let what = quick.subject.describe();
    let round = move || {
        let (stop, world) = (AtomicBool::new(false), &quick);
        let times = std::thread::scope(|scope| {
            scope.spawn(|| {
                pin_to(*processors().last().unwrap_or(&0));
                while !stop.load(Ordering::Relaxed) && slow(world, beside, &stop).is_ok() {
                    std::hint::spin_loop();
                }
            });
            let times = hits(world);
            stop.store(true, Ordering::Relaxed);
            times
        });
        Ok(if longest { times.max() } else { times.value_at_quantile(0.9999) } as f64)
    };
    Ok((Box::new(round), what))
}

/// Each hit's time, with the clock's.
fn hits<S: Subject>(world: &World<S>) -> Histogram<u64> {
    let requests = Order::Uniform.requests(REGIONS, 0);
    let mut times = Histogram::new_with_bounds(1, 10_000_000_000, 2).expect("constants");
    if let Some(&processor) = processors().first() {
        pin_to(processor);
    }
    let (end, mut last) = (Instant::now() + ROUND, Instant::now());
    for &n in requests.iter().cycle() {
        let n = n as usize;
        world.subject.put(world.subject.get(world.memory.at() + n * STRIDE, len_of(n)));
        let now = Instant::now();
        times.saturating_record((now - last).as_nanos() as u64);
        if now > end {
            break;
        }
        // Noting it down is not the hit's time.
        last = Instant::now();
    }
    times
}

fn slow<S: Subject>(world: &World<S>, beside: Beside, stop: &AtomicBool) -> Result<(), String> {
    let count = if beside == Beside::Registering { 100 } else { MANY };
    let memory = Memory::new(count * 2 * PAGE)?;
    for n in 0..count {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        world.subject.put(world.subject.get(memory.at() + n * 2 * PAGE, PAGE));
        if S::IS_FLOOR && beside == Beside::Registering {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    memory.unmap();
    Ok(())
}
