//! [`Scene`]: the memory under test in its surroundings, inside a cell's process.

use std::fs::File;
use std::io;

use super::mapping::Memory;
use super::traits::Traits;
use super::worker_stack::ParkedThread;
use crate::sys::{Arena, Block, ProgramBreak, Ring, Span};

/// What the memory is part of, where an event needs that.
#[derive(Debug)]
pub(crate) enum Held {
    Nothing,
    Break(ProgramBreak),
    Block(Block),
    Thread(ParkedThread),
}

/// What an event acts on.
pub(crate) struct Scene {
    pub(crate) memory: Memory,
    pub(crate) arena: Arena,
}

impl Scene {
    /// The whole of the memory under test.
    pub(crate) fn span(&self) -> Span {
        self.memory.span
    }

    /// One page of it, the second.
    pub(crate) fn one_page(&self) -> Span {
        self.span().part(self.memory.page_bytes.min(self.span().len_bytes() / 2), self.memory.page_bytes)
    }

    /// As much of it as `middle`, in whole pages.
    pub(crate) fn middle(&self) -> Span {
        if self.memory.traits.any(Traits::HUGE) { self.one_page() } else { self.span().middle() }
    }

    /// As long as the memory, elsewhere.
    pub(crate) fn elsewhere(&self) -> Span {
        self.arena.place(1, self.span().len_bytes())
    }

    /// A third place.
    pub(crate) fn scratch(&self) -> Span {
        self.arena.place(2, self.span().len_bytes())
    }

    /// The mapped file.
    pub(crate) fn file(&self) -> io::Result<&File> {
        self.memory.file.as_ref().ok_or_else(|| io::Error::other("no file is open for this mapping"))
    }

    /// A ring for events that io_uring itself performs.
    pub(crate) fn ring(&self) -> io::Result<Ring> {
        Ring::new(1)
    }

    /// Makes the memory usable again: holes are mapped, all is writable.
    pub(crate) fn repair(&self) -> io::Result<()> {
        for hole in self.span().holes() {
            hole.map_into_hole()?;
        }
        if self.memory.traits.any(Traits::READ_ONLY) {
            self.span().protect(libc::PROT_READ | libc::PROT_WRITE)?;
        }
        Ok(())
    }

    /// Takes what the memory is part of, for an event that consumes it.
    pub(crate) fn take_held(&mut self) -> Held {
        std::mem::replace(&mut self.memory.held, Held::Nothing)
    }
}
