//! Patterns of programs that register memory.

use super::tape::{Buffer, Tape};
use crate::rng::Zipf;

/// Halo exchange with 26 neighbours for several fields, a collective now and then through
/// temporaries that malloc gives back, some at addresses it had before.
pub(super) fn mpi(tape: &mut Tape) {
    let halos: Vec<_> = (0..60).map(|_| tape.mixed_buffers(52, 96 << 10, 1.2, 4 << 20)).collect();
    let pool = tape.mixed_buffers(3000, 256 << 10, 1.2, 8 << 20);
    let mut step = 0;
    while tape.len() < 480_000 {
        let fields = if step % 10 == 0 { halos.len() } else { 12 };
        halos[..fields].iter().flatten().for_each(|b| tape.touch(*b));
        for _ in 0..40 {
            let at = tape.rng.below(pool.len() as u64) as usize;
            (0..4).for_each(|_| tape.touch(pool[at]));
            if tape.rng.chance(0.5) {
                tape.free(pool[at]);
            }
        }
        step += 1;
    }
}

/// A ring of slots written in order, with control words touched at every turn.
pub(super) fn ring(tape: &mut Tape) {
    let slots = tape.buffers(9000, 64 << 10);
    let control = tape.buffers(64, 4 << 10);
    let mut at = 0;
    while tape.len() < 500_000 {
        tape.touch(slots[at % slots.len()]);
        at += 1;
        if at % 4 == 0 {
            let which = tape.rng.below(control.len() as u64) as usize;
            tape.touch(control[which]);
        }
        if tape.rng.chance(1e-4) {
            at += tape.rng.below(slots.len() as u64) as usize; // the reader asks for a resend
        }
    }
}

/// Blocks of KV cache: sequences join, take a block every few steps, read all their blocks to a
/// peer at times, and give them back to a last-in first-out free list.
pub(super) fn kv_cache(tape: &mut Tape) {
    let mut free = tape.buffers(9000, 256 << 10);
    let mut sequences: Vec<Vec<Buffer>> = Vec::new();
    while tape.len() < 480_000 {
        if tape.rng.chance(0.3) && free.len() > 400 {
            let blocks = 4 + tape.rng.below(60) as usize;
            let sequence = free.split_off(free.len() - blocks);
            sequence.iter().for_each(|b| tape.touch(*b));
            sequences.push(sequence);
        }
        let n = sequences.len() as u64;
        if n == 0 {
            continue;
        }
        let at = tape.rng.below(n) as usize;
        if let Some(block) = free.pop() {
            tape.touch(block);
            sequences[at].push(block);
        }
        if tape.rng.chance(0.1) {
            sequences[at].iter().for_each(|b| tape.touch(*b));
        }
        if free.len() < 400 || tape.rng.chance(0.25) {
            let at = tape.rng.below(n) as usize;
            let done = sequences.swap_remove(at);
            free.extend(done);
        }
    }
}

/// A write-ahead log round and round, reads by popularity, a compaction that streams once.
pub(super) fn storage(tape: &mut Tape) {
    let log = tape.buffers(4000, 128 << 10);
    let pages = tape.mixed_buffers(6000, 32 << 10, 0.7, 1 << 20);
    let zipf = Zipf::new(pages.len(), 0.9);
    let mut at = 0;
    while tape.len() < 500_000 {
        if tape.rng.chance(0.4) {
            tape.touch(log[at % log.len()]);
            at += 1;
        } else {
            let which = zipf.draw(&mut tape.rng);
            tape.touch(pages[which]);
        }
    }
}

/// Temporaries at a moving depth; what is popped is sometimes unmapped.
pub(super) fn stack(tape: &mut Tape) {
    let frames = tape.mixed_buffers(8000, 64 << 10, 1.0, 4 << 20);
    let mut depth = 10usize;
    while tape.len() < 400_000 {
        let swing = tape.rng.below(400) as i64 - 200;
        let target = (depth as i64 + swing).clamp(1, frames.len() as i64 - 1) as usize;
        for frame in &frames[depth.min(target)..depth.max(target)] {
            tape.touch(*frame);
        }
        if target < depth && tape.rng.chance(0.1) {
            frames[target..depth].iter().for_each(|f| tape.free(*f));
        }
        for _ in 0..40 {
            let back = tape.rng.below(60.min(target as u64) + 1) as usize;
            tape.touch(frames[target - back]);
        }
        depth = target;
    }
}

/// Data-parallel training: all gradient buckets each step in the same order, activations of two
/// alternating pipelines, all parameters at every 20th step.
pub(super) fn training(tape: &mut Tape) {
    let buckets = tape.buffers(1500, 1 << 20);
    let activations = tape.mixed_buffers(1600, 512 << 10, 0.8, 8 << 20);
    let parameters = tape.mixed_buffers(6000, 256 << 10, 1.0, 8 << 20);
    for step in 0..70 {
        let half = step % 2 * 800;
        activations[half..half + 800].iter().for_each(|b| tape.touch(*b));
        buckets.iter().for_each(|b| tape.touch(*b));
        if step % 20 == 19 {
            parameters.iter().for_each(|b| tape.touch(*b));
        }
    }
}

/// Rows of a feature table by power law, staged through a rotating set of batch buffers.
pub(super) fn samples(tape: &mut Tape) {
    let mut rows = tape.mixed_buffers(12_000, 32 << 10, 1.3, 4 << 20);
    let mut rng = tape.rng.clone();
    rng.shuffle(&mut rows);
    let staging = tape.buffers(256, 2 << 20);
    let zipf = Zipf::new(rows.len(), 0.75);
    let law = tape.law(zipf.law(&rows, 1.0));
    for batch in 0..3500 {
        for _ in 0..48 {
            let at = zipf.draw(&mut tape.rng);
            tape.touch_drawn(law, rows[at]);
        }
        tape.touch(staging[batch % staging.len()]);
    }
}

/// Small messages used often among bulk transfers that seldom repeat.
pub(super) fn small_large(tape: &mut Tape) {
    let small = tape.buffers(6000, 8 << 10);
    let large = tape.mixed_buffers(1500, 4 << 20, 0.5, 32 << 20);
    let zipf = Zipf::new(small.len(), 0.8);
    let rare = large.iter().map(|b| (*b, 0.15 / large.len() as f64));
    let law = zipf.law(&small, 0.85).into_iter().chain(rare).collect();
    let law = tape.law(law);
    for _ in 0..150_000 {
        if tape.rng.chance(0.85) {
            let at = zipf.draw(&mut tape.rng);
            tape.touch_drawn(law, small[at]);
        } else {
            let at = tape.rng.below(large.len() as u64) as usize;
            tape.touch_drawn(law, large[at]);
        }
    }
}
