//! A BPF ring buffer (Linux 5.8), read by its one consumer without a system call.
//! `Documentation/bpf/ringbuf.rst`.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use super::bpf_pages::{Mapped, Record};

const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER_BYTES: u64 = 8;
const PAGE: usize = 4096;

/// The consumer's view of a ring.
#[derive(Debug)]
pub(crate) struct BpfRing {
    consumer: Mapped,
    producer: Mapped,
    size_bytes: u64,
}

/// How a pass over the ring ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Records handed over.
    pub(crate) records: u64,
    /// Everything that was reserved before the pass has been handed over.
    pub(crate) complete: bool,
}

impl BpfRing {
    /// Maps the ring behind `fd`, whose data area is `size_bytes` (a power of two).
    pub(crate) fn new(fd: BorrowedFd<'_>, size_bytes: usize) -> io::Result<Self> {
        let consumer = Mapped::new(fd, 0, PAGE, true)?;
        // The kernel maps the data twice in a row, so that no record is split.
        let producer = Mapped::new(fd, PAGE, PAGE + 2 * size_bytes, false)?;
        Ok(Self { consumer, producer, size_bytes: size_bytes as u64 })
    }

    /// Up to where records are reserved; all of them that were committed before an event this
    /// thread has seen (e.g. a generation word's value) are below.
    pub(crate) fn reserved(&self) -> u64 {
        self.producer.word(0).load(Ordering::Acquire)
    }

    /// Hands over records up to `limit`, stopping at one that is still being written. For one
    /// thread at a time. Does not allocate or block.
    pub(crate) fn consume(&self, limit: u64, mut found: impl FnMut(Record)) -> Pass {
        let position = self.consumer.word(0);
        let mut at = position.load(Ordering::Relaxed);
        let mut records = 0;
        while at < limit {
            let header = self.header(at).load(Ordering::Acquire) as u32;
            if header & BUSY != 0 {
                break;
            }
            let len = u64::from(header & !(BUSY | DISCARDED));
            if header & DISCARDED == 0 && len >= size_of::<Record>() as u64 {
                found(self.record(at + HEADER_BYTES));
                records += 1;
            }
            at += (len + HEADER_BYTES).next_multiple_of(8);
            position.store(at, Ordering::Release); // the room may be written again from here on
        }
        Pass { records, complete: at >= limit }
    }

    fn offset(&self, at: u64) -> usize {
        PAGE + (at & (self.size_bytes - 1)) as usize
    }

    fn header(&self, at: u64) -> &AtomicU64 {
        self.producer.word(self.offset(at))
    }

    fn record(&self, at: u64) -> Record {
        let base = self.offset(at);
        let word = |i: usize| self.producer.word(base + 8 * i).load(Ordering::Relaxed);
        let last = word(2);
        Record { start: word(0), end: word(1), kind: last as u32, hook: (last >> 32) as u32 }
    }
}
