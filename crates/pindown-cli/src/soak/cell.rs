//! [`Cell`]: a piece of memory that is transferred from and changed.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::CELL_BYTES;
use crate::sys::{self, Block, HUGE_BYTES, PAGE_BYTES, Source, Span, Via};

/// What a cell is made of.
#[derive(Debug)]
pub(super) enum Stuff {
    /// Private anonymous memory at a fixed place.
    Anonymous,
    /// The same, in huge pages where the kernel likes.
    Thp,
    /// A memfd, mapped shared.
    Memfd(File),
    /// A block of the C library's allocator; `None` only while it is being replaced.
    Heap(Option<Block>),
}

#[derive(Debug)]
pub(super) struct Memory {
    pub(super) stuff: Stuff,
    pub(super) span: Span,
    /// What it was filled with last.
    pub(super) pattern: u64,
}

/// Whoever reads, writes or changes the memory has the lock; racers only look at the address.
#[derive(Debug)]
pub(super) struct Cell {
    memory: Mutex<Memory>,
    base: AtomicUsize,
    len: AtomicUsize,
}

impl Cell {
    pub(super) fn new(n: usize, seed: u64) -> io::Result<Self> {
        let pages = 4 << (n % 6);
        let memory = match n % 8 {
            0..=2 => fixed(Stuff::Anonymous, pages * PAGE_BYTES)?,
            3 => fixed(Stuff::Thp, CELL_BYTES)?,
            4 | 5 => memfd(pages * PAGE_BYTES)?,
            _ => heap((pages + 3) * PAGE_BYTES)?,
        };
        let cell = Self { base: AtomicUsize::new(0), len: AtomicUsize::new(0), memory: Mutex::new(memory) };
        let mut memory = cell.lock();
        memory.refill(seed.wrapping_add(n as u64));
        cell.publish(&memory);
        drop(memory);
        Ok(cell)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Memory>> {
        self.memory.try_lock().ok()
    }

    /// Tells racers where it is.
    pub(super) fn publish(&self, memory: &Memory) {
        self.base.store(memory.span.base(), Ordering::Relaxed);
        self.len.store(memory.span.len_bytes(), Ordering::Relaxed);
    }

    /// Where it was a moment ago: address and length, not always of the same moment.
    pub(super) fn whereabouts(&self) -> (usize, usize) {
        (self.base.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed))
    }
}

impl Memory {
    pub(super) fn refill(&mut self, pattern: u64) {
        self.pattern = pattern;
        self.span.fill(pattern);
    }

    pub(super) fn pages(&self) -> usize {
        self.span.len_bytes() / PAGE_BYTES
    }

    /// How its mapping is made again.
    pub(super) fn source(&self) -> Source<'_> {
        use std::os::fd::AsFd;
        match &self.stuff {
            Stuff::Memfd(file) => Source::File {
                fd: file.as_fd(),
                shared: true,
                offset: 0,
                prot: libc::PROT_READ | libc::PROT_WRITE,
            },
            _ => Source::Anonymous { shared: false, huge: false },
        }
    }
}

/// A place with as much reserved room behind it, so that it can grow.
fn place(len: usize) -> io::Result<Span> {
    let room = sys::map_apart(2 * CELL_BYTES + HUGE_BYTES)?;
    let base = room.base().next_multiple_of(HUGE_BYTES);
    let span = room.part(base - room.base(), len);
    sys::unmap(room.part(base - room.base() + len, CELL_BYTES - len + PAGE_BYTES), Via::Raw)?;
    Ok(span)
}

fn fixed(stuff: Stuff, len: usize) -> io::Result<Memory> {
    let span = place(len)?;
    if matches!(stuff, Stuff::Thp) {
        span.advise(libc::MADV_HUGEPAGE)?;
    }
    Ok(Memory { stuff, span, pattern: 0 })
}

fn memfd(len: usize) -> io::Result<Memory> {
    let memory = Memory { stuff: Stuff::Memfd(sys::memfd(c"soak", 0, len)?), span: place(len)?, pattern: 0 };
    sys::map_over(memory.span, memory.source(), Via::Raw)?;
    Ok(memory)
}

fn heap(len: usize) -> io::Result<Memory> {
    let block = Block::new(len)?;
    Ok(Memory { span: block.interior(), stuff: Stuff::Heap(Some(block)), pattern: 0 })
}
