//! [`Watched`]: which memory the programs should report, as the filter's bits.

use std::sync::atomic::Ordering::SeqCst;

use pindown_core::{Access, PageRange};

use crate::sys::bpf_pages::{CHUNK_SHIFT, CHUNK_WORDS, Filter};

const BITS: usize = CHUNK_WORDS * 64;

/// How many watched ranges use each bit of the filter. Guarded by the monitor's lock.
#[derive(Debug)]
pub(crate) struct Watched {
    users: Vec<u32>,
}

/// The hash of `bpf/report.h`.
fn bit_of(chunk: u64) -> usize {
    (chunk.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 49) as usize
}

/// The bits of a range: each of its chunks', or all when it has more chunks than there are bits.
fn bits(range: PageRange) -> impl Iterator<Item = usize> {
    let first = (range.start() >> CHUNK_SHIFT) as u64;
    let last = ((range.end() - 1) >> CHUNK_SHIFT) as u64;
    let wide = last - first >= BITS as u64;
    let count = if wide { BITS as u64 } else { last - first + 1 };
    (0..count).map(move |i| if wide { i as usize } else { bit_of(first + i) })
}

impl Watched {
    pub(crate) fn new() -> Self {
        Self { users: vec![0; BITS] }
    }

    /// From the return on, changes of `range` are reported.
    pub(crate) fn add(&mut self, filter: &Filter, range: PageRange, access: Access) {
        // A permission matters to whoever may still write through the registration: a peer.
        let remote = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        for bit in bits(range) {
            self.users[bit] += 1;
            filter.chunks[bit >> 6].fetch_or(1 << (bit & 63), SeqCst);
            if remote {
                filter.remote_chunks[bit >> 6].fetch_or(1 << (bit & 63), SeqCst);
            }
        }
        filter.remote.fetch_add(u64::from(remote), SeqCst);
        filter.ranges.fetch_add(1, SeqCst);
    }

    /// Undoes one `add` of `range`. The remote bit goes with the last user of its chunk, since who
    /// unsubscribes does not say what access it had.
    pub(crate) fn remove(&mut self, filter: &Filter, range: PageRange) {
        for bit in bits(range) {
            self.users[bit] = self.users[bit].saturating_sub(1);
            if self.users[bit] == 0 {
                filter.chunks[bit >> 6].fetch_and(!(1 << (bit & 63)), SeqCst);
                filter.remote_chunks[bit >> 6].fetch_and(!(1 << (bit & 63)), SeqCst);
            }
        }
        let before = filter.ranges.load(SeqCst);
        filter.ranges.store(before.saturating_sub(1), SeqCst);
        if before <= 1 {
            filter.remote.store(0, SeqCst);
        }
    }
}
