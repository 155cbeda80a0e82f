//! The program's buffers, and what it does to them.

use std::io;

use super::Churn;
use super::plan::Group;
use crate::sys::{self, Block, PAGE_BYTES, Source, Span, Via};

/// Every so many transfers the buffer about to be used changes.
pub(crate) const CHURN_EVERY: u64 = 16;

/// Buffers used in turn.
#[derive(Debug)]
pub(crate) struct Pool {
    buffers: Vec<Buffer>,
    churn: Churn,
    uses: u64,
    churns: u64,
}

#[derive(Debug)]
enum Buffer {
    /// A mapping that is this pool's own.
    Mapped(Span),
    /// Of the C library's allocator. `None` only while it changes.
    Block(Option<Block>, usize),
}

impl Buffer {
    fn span(&self) -> Option<Span> {
        match self {
            Self::Mapped(span) => Some(*span),
            Self::Block(block, len) => block.as_ref().map(|block| block.interior().part(0, *len)),
        }
    }
}

/// What changes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Remap,
    DontNeed,
    ShrinkGrow,
    MapOver,
}

impl Pool {
    pub(crate) fn new(group: &Group) -> io::Result<Self> {
        let size = group.size_bytes;
        let blocks = match group.churn {
            Churn::Free => group.buffers,
            Churn::Mixed => group.buffers / 2,
            Churn::None | Churn::Remap => 0,
        };
        let mut buffers = Vec::with_capacity(group.buffers);
        for _ in 0..blocks {
            buffers.push(Buffer::Block(Some(new_block(size)?), size));
        }
        if blocks < group.buffers {
            let all = sys::map_apart((group.buffers - blocks) * size)?;
            buffers.extend((0..group.buffers - blocks).map(|i| Buffer::Mapped(all.part(i * size, size))));
        }
        Ok(Self { buffers, churn: group.churn, uses: 0, churns: 0 })
    }

    /// All buffers as they are now.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.buffers.iter().filter_map(Buffer::span).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.buffers.len()
    }

    /// The next buffer, and whether it changes before it is used.
    pub(crate) fn next(&mut self) -> (usize, bool) {
        self.uses += 1;
        let index = (self.uses % self.buffers.len() as u64) as usize;
        (index, self.churn != Churn::None && self.uses.is_multiple_of(CHURN_EVERY - 1))
    }

    pub(crate) fn span(&self, index: usize) -> io::Result<Span> {
        self.buffers[index].span().ok_or_else(|| io::Error::other("the allocator gave no buffer"))
    }

    /// Changes the buffer beneath whoever registered it.
    pub(crate) fn churn(&mut self, index: usize) -> io::Result<()> {
        self.churns += 1;
        match &mut self.buffers[index] {
            Buffer::Block(block, size) => {
                if let Some(old) = block.take() {
                    old.free();
                }
                *block = Some(new_block(*size)?);
                Ok(())
            }
            Buffer::Mapped(span) => change(*span, next_change(self.churn, self.churns)),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for buffer in &mut self.buffers {
            match buffer {
                Buffer::Mapped(span) => drop(sys::unmap(*span, Via::Libc)),
                Buffer::Block(block, _) => drop(block.take().map(Block::free)),
            }
        }
    }
}

fn new_block(size: usize) -> io::Result<Block> {
    Block::new(size + 3 * PAGE_BYTES)
}

fn next_change(churn: Churn, count: u64) -> Change {
    match (churn, count % 4) {
        (Churn::Mixed, 1) => Change::DontNeed,
        (Churn::Mixed, 2) => Change::ShrinkGrow,
        (Churn::Mixed, 3) => Change::MapOver,
        _ => Change::Remap,
    }
}

fn change(span: Span, change: Change) -> io::Result<()> {
    match change {
        Change::Remap => {
            sys::unmap(span, Via::Libc)?;
            span.map_into_hole()
        }
        Change::DontNeed => span.advise(libc::MADV_DONTNEED),
        Change::ShrinkGrow if span.len_bytes() > PAGE_BYTES => {
            let half = span.half(false);
            sys::resize_in_place(span, half.len_bytes())?;
            sys::resize_in_place(half, span.len_bytes())
        }
        Change::ShrinkGrow | Change::MapOver => {
            sys::map_over(span, Source::Anonymous { shared: false, huge: false }, Via::Libc)
        }
    }
}
