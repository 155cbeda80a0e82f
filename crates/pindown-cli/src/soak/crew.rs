//! The threads of a soak.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pindown::provider::io_uring::UringProvider;
use pindown::{Access, AcquireError, Registration};

use super::cell::{Memory, Stuff};
use super::mutate::mutate;
use super::random::Random;
use super::{Soak, Tally};
use crate::sys::{self, Block, PAGE_BYTES};

type Task = fn(&Soak, &mut Random);

/// Two movers, two mutators, two racers, one of each other.
const CREW: [(&str, Task); 8] = [
    ("mover", mover),
    ("mover", mover),
    ("mutator", mutator),
    ("mutator", mutator),
    ("racer", racer),
    ("racer", racer),
    ("forker", forker),
    ("churner", churner),
];

pub(super) fn start(soak: &Arc<Soak>, seed: u64) -> Vec<JoinHandle<()>> {
    let start = |(n, (name, task)): (usize, &(&'static str, Task))| {
        let (soak, task, mut random) = (soak.clone(), *task, Random::new(seed, n as u64 + 1));
        std::thread::Builder::new()
            .name(format!("{name}-{n}"))
            .spawn(move || {
                while !soak.stop.load(Ordering::Acquire) {
                    task(&soak, &mut random);
                }
            })
            .expect("a thread")
    };
    CREW.iter().enumerate().map(start).collect()
}

fn acquire(soak: &Soak, addr: usize, len: usize, access: Access) -> Option<Registration<UringProvider>> {
    soak.tally.op();
    let result = sys::acquire_cell(&soak.cache, addr, len, access);
    match result {
        Ok(registration) => Some(registration),
        Err(AcquireError::Register(_) | AcquireError::Budget { .. } | AcquireError::Range(_)) => {
            Tally::add(&soak.tally.refused);
            None
        }
        Err(error) => {
            eprintln!("acquire: {error}");
            Tally::add(&soak.tally.errors);
            None
        }
    }
}

/// Locks a cell, moves some of its bytes out or in, and compares.
fn mover(soak: &Soak, random: &mut Random) {
    let cell = &soak.cells[random.below(soak.cells.len())];
    let mut memory = cell.lock();
    for _ in 0..1 + random.below(8) {
        move_once(soak, &mut memory, random);
    }
}

fn move_once(soak: &Soak, memory: &mut Memory, random: &mut Random) {
    let (first, pages) = random.part(memory.pages().min(16));
    let span = memory.span.part(first * PAGE_BYTES, pages * PAGE_BYTES);
    let Some(registration) = acquire(soak, span.base(), span.len_bytes(), Access::READ_WRITE) else { return };
    let mut mover = soak.mover.lock().unwrap_or_else(PoisonError::into_inner);
    let good = if random.one_in(4) {
        let data: Vec<u8> =
            (0..span.len_bytes()).map(|i| (i as u64 ^ memory.pattern ^ random.0) as u8).collect();
        sys::receive(&mut mover, registration.key(), span, &data).map(|()| span.equals(&data))
    } else {
        mover.write_fixed(registration.key(), span.ptr(), span.len_bytes()).map(|sent| span.equals(sent))
    };
    drop(mover);
    Tally::add(&soak.tally.transfers);
    match good {
        Ok(true) => {}
        Ok(false) => Tally::add(&soak.tally.stale),
        Err(error) => {
            eprintln!("transfer: {error}");
            Tally::add(&soak.tally.errors);
        }
    }
}

/// Changes a cell's mapping and fills it anew.
fn mutator(soak: &Soak, random: &mut Random) {
    let cell = &soak.cells[random.below(soak.cells.len())];
    let mut memory = cell.lock();
    soak.tally.op();
    Tally::add(&soak.tally.mutations);
    if let Err(error) = mutate(&mut memory, random).or_else(|error| mend(soak, &memory, error)) {
        eprintln!("mutate: {error}");
        Tally::add(&soak.tally.errors);
        soak.stop.store(true, Ordering::Release);
        return; // the memory may be in pieces
    }
    let pattern = random.next();
    memory.refill(pattern);
    cell.publish(&memory);
    drop(memory);
    if random.one_in(4) {
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// mremap takes one mapping, and userfaultfd may just then hold one part of the cell armed and
/// another not (EFAULT; a window of microseconds, documented with the monitor): start again.
fn mend(soak: &Soak, memory: &Memory, error: std::io::Error) -> std::io::Result<()> {
    if error.raw_os_error() != Some(libc::EFAULT) || matches!(memory.stuff, Stuff::Heap(_)) {
        return Err(error);
    }
    Tally::add(&soak.tally.split);
    sys::map_over(memory.span, memory.source(), sys::Via::Raw)
}

/// Acquires anything, anywhere near, whatever happens to it, and holds some.
fn racer(soak: &Soak, random: &mut Random) {
    let mut held = Vec::new();
    for _ in 0..64 {
        let (base, len) = soak.cells[random.below(soak.cells.len())].whereabouts();
        let (first, pages) = random.part((len / PAGE_BYTES).max(1));
        let (addr, len) = (base + first * PAGE_BYTES + random.below(64), pages * PAGE_BYTES - 64);
        if random.one_in(3) {
            soak.tally.op();
            held.extend(soak.cache.lookup(std::ptr::without_provenance(addr), len, Access::READ));
        } else {
            held.extend(acquire(soak, addr, len, Access::READ_WRITE));
        }
        while held.len() > random.below(24) {
            let at = random.below(held.len());
            held.swap_remove(at);
        }
    }
}

/// Forks; the child must find nothing of the parent's registrations, and hang nobody.
fn forker(soak: &Soak, random: &mut Random) {
    std::thread::sleep(Duration::from_millis(20));
    let cell = &soak.cells[random.below(soak.cells.len())];
    let Some(memory) = cell.try_lock() else { return };
    let (span, cache) = (memory.span, &soak.cache);
    soak.tally.op();
    Tally::add(&soak.tally.forks);
    let child = sys::fork_and_check(span, random.one_in(2), || {
        cache.lookup(span.ptr(), span.len_bytes(), Access::READ).is_none()
            && matches!(
                sys::acquire_cell(cache, span.base(), span.len_bytes(), Access::READ),
                Err(AcquireError::Forked)
            )
    });
    if let Err(error) = child {
        eprintln!("fork: {error}");
        Tally::add(&soak.tally.errors);
    }
}

/// malloc, realloc and free of every size, as the rest of a program does.
fn churner(soak: &Soak, random: &mut Random) {
    let mut blocks: Vec<Block> = Vec::new();
    for _ in 0..64 {
        soak.tally.op();
        let len = 16 << random.below(18);
        match (blocks.pop(), random.below(3)) {
            (Some(block), 0) => block.free(),
            (Some(block), 1) => blocks.extend(block.resize(len).ok()),
            (block, _) => {
                blocks.extend(block);
                blocks.extend(Block::new(len).ok());
            }
        }
    }
    blocks.into_iter().for_each(Block::free);
    if random.one_in(16) {
        sys::trim_heap();
    }
}
