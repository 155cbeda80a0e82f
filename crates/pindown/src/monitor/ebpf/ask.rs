//! What is mapped where, asked of the programs themselves (bpf/ask.h).

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pindown_core::PageRange;

use super::client::Client;
use crate::sys::bpf;

/// Mappings that one range may span.
const MAPPINGS: usize = 256;
/// The program can only try for the lock on the address space, and fails while another thread holds
/// it or waits for it (which it does until it is scheduled). So after some immediate tries we sleep,
/// each time longer: some 100 ms in all.
const IMMEDIATE_TRIES: u32 = 8;
const TRIES: u32 = IMMEDIATE_TRIES + 12;
const FIRST_SLEEP: Duration = Duration::from_micros(20);

mod bit {
    pub(super) const FOUND: u64 = 1;
    pub(super) const FILE: u64 = 2;
    pub(super) const SHARED: u64 = 4;
    pub(super) const SPECIAL: u64 = 16;
    pub(super) const ANON_HUGE: u64 = 32;
    pub(super) const WATCHED: u64 = 64;
    pub(super) const BUSY: u64 = 128;
}

/// Asks one question at a time, since the answer has one place.
#[derive(Debug, Default)]
pub(crate) struct Asker(Mutex<u64>);

/// What a range is, if it can be covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Covered {
    /// Some of it is a shared mapping, whose file is watched.
    pub(crate) has_file: bool,
}

impl Asker {
    /// Whether the tracepoint variant sees every change of `range`; if not, why.
    pub(crate) fn cover(&self, client: &Client, range: PageRange) -> Result<Covered, &'static str> {
        let mut cookie = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut covered = Covered { has_file: false };
        let mut at = range.start();
        for _ in 0..MAPPINGS {
            *cookie += 1;
            let (bits, end) = answer(client, at, *cookie)?;
            verdict(bits)?;
            covered.has_file |= bits & bit::SHARED != 0;
            if end >= range.end() {
                return Ok(covered);
            }
            at = end;
        }
        Err("it spans too many mappings")
    }
}

fn answer(client: &Client, at: usize, cookie: u64) -> Result<(u64, usize), &'static str> {
    let status = &client.status;
    for attempt in 0..TRIES {
        bpf::ask(at, client.slot, cookie);
        if status.asked.load(Acquire) != cookie {
            return Err("the BPF programs do not answer");
        }
        let bits = status.answer.load(Relaxed);
        if bits & bit::BUSY == 0 {
            return Ok((bits, status.vma_end.load(Relaxed) as usize));
        }
        match attempt.checked_sub(IMMEDIATE_TRIES) {
            Some(late) => std::thread::sleep(FIRST_SLEEP * (1 << late)),
            None => std::thread::yield_now(),
        }
    }
    Err("the address space is being changed all the time")
}

fn verdict(bits: u64) -> Result<(), &'static str> {
    let is = |b: u64| bits & b != 0;
    if !is(bit::FOUND) {
        return Err("nothing is mapped there");
    }
    if is(bit::SPECIAL) {
        return Err("device memory changes unseen");
    }
    if is(bit::SHARED) && !is(bit::WATCHED) {
        return Err("too many files are watched");
    }
    if is(bit::FILE) && !is(bit::SHARED) && !is(bit::ANON_HUGE) {
        return Err("a private file mapping: its file can be cut by another process unseen");
    }
    Ok(())
}
