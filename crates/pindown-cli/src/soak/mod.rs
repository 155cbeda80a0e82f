//! `pindown soak`: everything at once, for as long as asked, with every byte compared.
//!
//! Movers lock a cell of memory, acquire, transfer and compare. Mutators lock a cell and do to its
//! mapping what programs do. Racers acquire, hold and drop anywhere without any lock, so that
//! registrations race with changes. Forkers fork, and their children look at what they inherited. An
//! allocating thread churns the heap. At the end everything registered must be deregistered.

mod cell;
mod crew;
mod mutate;
mod random;
mod report;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pindown::Cache;
use pindown::provider::io_uring::{Mover, UringProvider};

use crate::exit::{CliError, Verdict};
use crate::monitors::{MonitorName, cache_on, no_ring};
use crate::ui;
use cell::Cell;

/// Acquire, transfer and compare while memory changes in every way; check bytes and books.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Args {
    /// Stop after this many seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Stop after this many operations, if that is earlier.
    #[arg(long)]
    ops: Option<u64>,
    /// Who keeps the cache coherent.
    #[arg(long, value_enum, default_value_t = MonitorName::Auto)]
    monitor: MonitorName,
    /// The order of operations of each thread follows from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Largest cell, in bytes.
const CELL_BYTES: usize = 512 << 10;
const CELLS: usize = 24;
/// Without any operation for so long, something hangs.
const HANG: Duration = Duration::from_secs(30);

/// What the crew shares.
struct Soak {
    cache: Cache<UringProvider>,
    mover: Mutex<Mover>,
    cells: Vec<Cell>,
    stop: AtomicBool,
    tally: Tally,
}

/// What was done.
#[derive(Debug, Default)]
struct Tally {
    ops: AtomicU64,
    transfers: AtomicU64,
    mutations: AtomicU64,
    forks: AtomicU64,
    stale: AtomicU64,
    refused: AtomicU64,
    /// mremaps that met a mapping in pieces.
    split: AtomicU64,
    errors: AtomicU64,
}

impl Tally {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
    fn op(&self) {
        Self::add(&self.ops);
    }
}

pub(crate) fn run(args: &Args) -> Result<Verdict, CliError> {
    let mover = Mover::new(1, CELL_BYTES).map_err(no_ring)?;
    let cache = cache_on(mover.ring(), args.monitor)?;
    let cells: Result<Vec<_>, _> = (0..CELLS).map(|n| Cell::new(n, args.seed)).collect();
    let cells =
        cells.map_err(|e| CliError::machine(format!("no memory to soak: {e}"), "free some memory"))?;
    let soak = Arc::new(Soak {
        cache,
        mover: Mutex::new(mover),
        cells,
        stop: AtomicBool::new(false),
        tally: Tally::default(),
    });
    let started = Instant::now();
    let crew = crew::start(&soak, args.seed);
    let hung = watch(&soak, args, started);
    soak.stop.store(true, Ordering::Release);
    if hung {
        report::hang(&soak);
        return Ok(Verdict::Bad); // the process ends with its hung threads
    }
    for member in crew {
        if member.join().is_err() {
            Tally::add(&soak.tally.errors);
        }
    }
    report::finish(soak, args, started.elapsed())
}

/// Waits for the end; whether it never came.
fn watch(soak: &Soak, args: &Args, started: Instant) -> bool {
    let bar = ui::progress(args.seconds, "soak");
    let (mut last, mut moved) = (0, Instant::now());
    while started.elapsed().as_secs() < args.seconds && !soak.stop.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(200));
        let ops = soak.tally.ops.load(Ordering::Relaxed);
        bar.set_position(started.elapsed().as_secs());
        bar.set_message(format!("{} ops", ui::count(ops)));
        if ops != last {
            (last, moved) = (ops, Instant::now());
        }
        if moved.elapsed() > HANG {
            return true;
        }
        if args.ops.is_some_and(|most| ops >= most) {
            break;
        }
    }
    bar.finish_and_clear();
    false
}
