//! Patterns of the caching literature.

use super::tape::Tape;
use crate::rng::Zipf;

const LEN: u64 = 64 << 10;
const REQUESTS: usize = 150_000;

pub(super) fn cyclic(tape: &mut Tape) {
    let buffers = tape.buffers(11_000, LEN);
    (0..220_000).for_each(|n| tape.touch(buffers[n % buffers.len()]));
}

pub(super) fn cyclic_mixed(tape: &mut Tape) {
    let buffers = tape.mixed_buffers(11_000, 128 << 10, 1.5, 8 << 20);
    (0..220_000).for_each(|n| tape.touch(buffers[n % buffers.len()]));
}

fn zipf_over(tape: &mut Tape, n: usize, requests: usize, exponent: f64) {
    let mut buffers = tape.buffers(n, LEN);
    let mut rng = tape.rng.clone();
    rng.shuffle(&mut buffers);
    zipf_requests(tape, &buffers, requests, exponent);
}

fn zipf_requests(tape: &mut Tape, buffers: &[super::tape::Buffer], requests: usize, exponent: f64) {
    let zipf = Zipf::new(buffers.len(), exponent);
    let law = tape.law(zipf.law(buffers, 1.0));
    for _ in 0..requests {
        let at = zipf.draw(&mut tape.rng);
        tape.touch_drawn(law, buffers[at]);
    }
}

pub(super) fn zipf(tape: &mut Tape) {
    zipf_over(tape, 10_000, 240_000, 0.99);
}

pub(super) fn zipf_scan(tape: &mut Tape) {
    let mut buffers = tape.buffers(10_000, LEN);
    let mut rng = tape.rng.clone();
    rng.shuffle(&mut buffers);
    zipf_requests(tape, &buffers, 120_000, 0.99);
    let once = tape.buffers(2500, LEN);
    once.into_iter().for_each(|b| tape.touch(b));
    zipf_requests(tape, &buffers, 120_000, 0.99);
}

pub(super) fn phases(tape: &mut Tape) {
    for _ in 0..6 {
        zipf_over(tape, 3000, 40_000, 0.6);
    }
}

pub(super) fn uniform(tape: &mut Tape) {
    let buffers = tape.buffers(8000, LEN);
    let law = tape.law(buffers.iter().map(|b| (*b, 1.0 / 8000.0)).collect());
    for _ in 0..REQUESTS {
        let at = tape.rng.below(buffers.len() as u64) as usize;
        tape.touch_drawn(law, buffers[at]);
    }
}

pub(super) fn sawtooth(tape: &mut Tape) {
    let buffers = tape.buffers(8000, LEN);
    for lap in 0..20 {
        let order: Box<dyn Iterator<Item = _>> =
            if lap % 2 == 0 { Box::new(buffers.iter()) } else { Box::new(buffers.iter().rev()) };
        order.for_each(|b| tape.touch(*b));
    }
}

pub(super) fn drift(tape: &mut Tape) {
    let buffers = tape.mixed_buffers(30_000, 64 << 10, 0.8, 4 << 20);
    for n in 0..200_000 {
        let centre = 2000.0 + n as f64 / 200_000.0 * 26_000.0;
        let at = centre + 900.0 * tape.rng.normal();
        tape.touch(buffers[(at.max(0.0) as usize).min(buffers.len() - 1)]);
    }
}
