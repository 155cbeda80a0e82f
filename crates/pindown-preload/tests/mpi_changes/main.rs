//! `mpirun -n 2 mpi_changes LIBMPI REPETITIONS right|stale`: a program whose buffers change between
//! messages in every way that Linux has, and whose receiver checks each byte.
//!
//! Each repetition sends a pattern (so that the engine has the buffer registered), changes the memory of
//! the sender's buffer (even repetitions) or of the receiver's (odd ones), and sends another pattern.
//! `right`: all bytes must be right. `stale`: the engine runs without help, and must have moved old bytes
//! after each change that its own hooks do not see, else the other run proves nothing.

mod change;
mod memory;
mod mpi;

use std::process::ExitCode;

use change::Change;
use memory::Memory;
use mpi::Mpi;

/// Far above every engine's rendezvous threshold: the buffer itself is registered.
const LEN: usize = 256 << 10;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, library, repetitions, expected] = args.as_slice() else {
        println!(
            "skipped: a program for `mpirun -n 2` (in the lab: cargo xtask test --full --only preloads)"
        );
        return ExitCode::SUCCESS;
    };
    let repetitions = repetitions.parse().expect("REPETITIONS is a number");
    let mpi = Mpi::start(library);
    let mut all_good = true;
    for change in Change::ALL {
        let tally = play(&mpi, *change, repetitions);
        if mpi.rank() == 1 {
            all_good &= judge(*change, &tally, expected);
        }
    }
    mpi.finish();
    // Not every mpirun hands on an exit status: this line is what counts.
    if all_good && mpi.rank() == 1 {
        println!("{} kinds of change, {repetitions} times each, all {expected}", Change::ALL.len());
    }
    if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How many messages of one kind arrived how.
#[derive(Debug, Default)]
struct Tally {
    right: u32,
    /// Everything of the message before.
    old: u32,
    mixed: u32,
    /// Wrong before the repetition's change.
    early: u32,
}

fn play(mpi: &Mpi, change: Change, repetitions: u32) -> Tally {
    let mut tally = Tally::default();
    let mut memory = Memory::new(change.backing(), LEN);
    for turn in 0..repetitions {
        let (before, after) = (seed(change, turn, 0), seed(change, turn, 1));
        let changes = mpi.rank() == (turn % 2) as i32;
        if mpi.rank() == 0 {
            memory.fill(before);
            mpi.send(memory.addr(), LEN);
            mpi.ready();
            if changes {
                change.apply(&mut memory);
            }
            memory.fill(after);
            mpi.send(memory.addr(), LEN);
        } else {
            memory.fill(!after);
            mpi.receive(memory.addr(), LEN);
            // Alone, an engine that moved old bytes once does so until it registers anew.
            tally.early += u32::from(!memory.has(before));
            mpi.ready();
            if changes {
                change.apply(&mut memory);
                memory.fill(!after);
            }
            mpi.receive(memory.addr(), LEN);
            // What a receiver whose writes were lost sees is what it filled in.
            match (memory.has(after), memory.has(before) || memory.has(!after)) {
                (true, _) => tally.right += 1,
                (_, true) => tally.old += 1,
                _ => tally.mixed += 1,
            }
        }
    }
    tally
}

/// Another one for each message.
fn seed(change: Change, turn: u32, which: u32) -> u32 {
    ((change as u32) << 24 | turn << 1 | which).wrapping_mul(0x9E37_79B1)
}

fn judge(change: Change, tally: &Tally, expected: &str) -> bool {
    let wrong = tally.old + tally.mixed;
    let good = match expected {
        "right" => wrong + tally.early == 0,
        // A change that the hooks see is right there too.
        "stale" => (wrong == 0) == change.is_seen_by_hooks(),
        other => panic!("want right or stale, not {other}"),
    };
    println!(
        "{:28} right {:4}  old {:4}  mixed {:4}  early {:4}{}",
        change.name(),
        tally.right,
        tally.old,
        tally.mixed,
        tally.early,
        if good { "" } else { "  <-- NOT as expected" }
    );
    good
}
