//! Hits.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Instant;

use super::{Round, World};
use crate::subject::{Settings, Subject};
use crate::sys::{ns_since, pin_to, processors};
use crate::workload::{OPS, Order, STRIDE, len_of};

/// One request; computed before, so that the loop is the cache's.
#[derive(Clone, Copy, Debug)]
struct Request {
    addr: usize,
    len: usize,
}

/// Requests of one pass: few where few regions are asked for, so that reading them costs nothing.
fn per_pass(regions: usize) -> usize {
    if regions <= 1000 { OPS / 256 } else { OPS }
}

/// Passes of one round, so that a round takes some milliseconds.
fn passes(regions: usize) -> usize {
    if regions <= 1000 { 2048 } else { 1 }
}

fn requests(base: usize, regions: usize, order: Order, thread: usize) -> Arc<[Request]> {
    let numbers = order.requests(regions, thread);
    let request = |n: usize| Request { addr: base + n * STRIDE, len: len_of(n) };
    numbers[..per_pass(regions)].iter().map(|n| request(*n as usize)).collect()
}

pub(super) fn prepare<S: Subject>(
    settings: &Settings,
    regions: usize,
    order: Order,
    threads: usize,
) -> Result<(Round, String), String> {
    let world = Arc::new(World::<S>::filled(settings, regions)?);
    let what = world.subject.describe();
    let processors = processors();
    if processors.len() < threads {
        return Err(format!("{threads} threads need as many processors, here are {}", processors.len()));
    }
    let base = world.memory.at();
    let requests: Vec<_> = (0..threads).map(|thread| requests(base, regions, order, thread)).collect();
    let before = world.subject.registrations();
    let round = move || {
        let ns = if threads == 1 {
            pin_to(processors[0]);
            run(&world, &requests[0], order, passes(regions))
        } else {
            together(&world, &requests, &processors, order, passes(regions))
        };
        match world.subject.registrations() - before {
            0 => Ok(ns),
            misses => Err(format!("{misses} of what should be hits were misses")),
        }
    };
    Ok((Box::new(round), what))
}

/// All threads at once; the mean of what each takes.
fn together<S: Subject>(
    world: &Arc<World<S>>,
    requests: &[Arc<[Request]>],
    processors: &[usize],
    order: Order,
    passes: usize,
) -> f64 {
    let barrier = Arc::new(Barrier::new(requests.len()));
    let threads = requests.iter().zip(processors).map(|(requests, &processor)| {
        let (world, requests, barrier) = (world.clone(), requests.clone(), barrier.clone());
        std::thread::spawn(move || {
            pin_to(processor);
            barrier.wait();
            run(&world, &requests, order, passes)
        })
    });
    let threads: Vec<_> = threads.collect();
    let count = threads.len() as f64;
    threads.into_iter().map(|t| t.join().expect("a thread that only hits")).sum::<f64>() / count
}

/// Nanoseconds a request.
fn run<S: Subject>(world: &World<S>, requests: &[Request], order: Order, passes: usize) -> f64 {
    let started = Instant::now();
    for _ in 0..passes {
        let keys = match order {
            Order::Dependent => dependent(&world.subject, requests),
            _ => independent(&world.subject, requests),
        };
        black_box(keys);
    }
    ns_since(started) / (requests.len() * passes) as f64
}

#[inline(never)]
fn independent<S: Subject>(subject: &S, requests: &[Request]) -> u64 {
    let mut keys = 0;
    for &Request { addr, len } in requests {
        let hold = subject.get(addr, len);
        keys ^= S::read(&hold);
        subject.put(hold);
    }
    keys
}

#[inline(never)]
fn dependent<S: Subject>(subject: &S, requests: &[Request]) -> u64 {
    let (none, mut last) = (black_box(0), 0);
    for &Request { addr, len } in requests {
        let hold = subject.get(addr + (last & none) as usize, len);
        last = S::read(&hold);
        subject.put(hold);
    }
    last
}

/// Holds that go over to the other thread at a time.
const BATCH: usize = 8;

pub(super) fn handover<S: Subject>(settings: &Settings) -> Result<(Round, String), String> {
    let regions = 1000;
    let world = Arc::new(World::<S>::filled(settings, regions)?);
    let what = world.subject.describe();
    let requests = Order::Uniform.requests(regions, 0);
    let round = move || {
        let (give, take) = mpsc::sync_channel::<Vec<S::Hold>>(2);
        let (back, empty) = mpsc::sync_channel::<Vec<S::Hold>>(4);
        let putting = world.clone();
        let other = std::thread::spawn(move || {
            for mut holds in take {
                holds.drain(..).for_each(|hold| putting.subject.put(hold));
                let _ = back.send(holds);
            }
        });
        let started = Instant::now();
        for batch in requests.chunks(BATCH).take(OPS / 4 / BATCH) {
            let mut holds = empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH));
            let get = |n: usize| world.subject.get(world.memory.at() + n * STRIDE, len_of(n));
            holds.extend(batch.iter().map(|n| get(*n as usize)));
            give.send(holds).map_err(|_| "the other thread ended")?;
        }
        drop(give);
        drop(empty);
        other.join().map_err(|_| "the other thread panicked")?;
        Ok(ns_since(started) / (OPS / 4) as f64)
    };
    Ok((Box::new(round), what))
}

/// Hits all regions until told to stop, on the second processor.
pub(super) fn hit_meanwhile<S: Subject, T>(
    world: &World<S>,
    regions: usize,
    meanwhile: impl FnOnce() -> T,
) -> T {
    let stop = AtomicBool::new(false);
    let requests = requests(world.memory.at(), regions, Order::Uniform, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin_to(*processors().last().unwrap_or(&0));
            while !stop.load(Ordering::Relaxed) {
                black_box(independent(&world.subject, &requests));
            }
        });
        let result = meanwhile();
        stop.store(true, Ordering::Relaxed);
        result
    })
}
