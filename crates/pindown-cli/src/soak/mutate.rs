//! What is done to a cell's mapping.

use std::io;

use super::cell::{Memory, Stuff};
use super::random::Random;
use crate::sys::{self, Block, PAGE_BYTES, Span, Via};

/// Changes the memory in one of the ways programs do. Its contents are lost; the caller refills.
pub(super) fn mutate(memory: &mut Memory, random: &mut Random) -> io::Result<()> {
    match &mut memory.stuff {
        Stuff::Heap(block) => {
            let block = block.take();
            reallocate(memory, block, random)
        }
        Stuff::Memfd(file) => {
            let file = file.try_clone()?;
            if random.one_in(3) { remap(memory, random) } else { change_file(memory.span, &file, random) }
        }
        Stuff::Anonymous | Stuff::Thp => {
            if random.one_in(2) {
                remap(memory, random)
            } else {
                give_back(memory.span, random)
            }
        }
    }
}

fn via(random: &mut Random) -> Via {
    if random.one_in(2) { Via::Raw } else { Via::Libc }
}

fn part(span: Span, random: &mut Random) -> Span {
    let (first, pages) = random.part(span.len_bytes() / PAGE_BYTES);
    span.part(first * PAGE_BYTES, pages * PAGE_BYTES)
}

/// New pages at the same addresses.
fn remap(memory: &mut Memory, random: &mut Random) -> io::Result<()> {
    let (span, how) = (memory.span, via(random));
    match random.below(4) {
        0 => {
            sys::unmap(span, how)?;
            sys::map_over(span, memory.source(), how)
        }
        1 => sys::map_over(span, memory.source(), how),
        2 if memory.pages() > 1 => {
            // Shrink and grow in place, as realloc does. One mapping first: mremap takes no more.
            sys::map_over(span, memory.source(), how)?;
            let kept = (1 + random.below(memory.pages() - 1)) * PAGE_BYTES;
            sys::resize_in_place(span, kept)?;
            sys::resize_in_place(span.part(0, kept), span.len_bytes())
        }
        _ => move_away(memory, how),
    }
}

/// mremap to elsewhere, and a new mapping where it was.
fn move_away(memory: &Memory, how: Via) -> io::Result<()> {
    sys::map_over(memory.span, memory.source(), how)?;
    memory.span.fill(3);
    let elsewhere = sys::map_new(memory.span.len_bytes())?;
    sys::move_onto(memory.span, elsewhere, how)?;
    sys::map_over(memory.span, memory.source(), how)?;
    sys::unmap(elsewhere, how)
}

/// madvise and mprotect.
fn give_back(span: Span, random: &mut Random) -> io::Result<()> {
    let part = part(span, random);
    match random.below(5) {
        0 | 1 => part.advise(libc::MADV_DONTNEED),
        2 => part.advise(libc::MADV_FREE),
        3 => sys::process_madvise_self(part, libc::MADV_DONTNEED).or(part.advise(libc::MADV_DONTNEED)),
        _ => sys::map_over(part, sys::Source::Anonymous { shared: false, huge: false }, via(random)),
    }
}

fn change_file(span: Span, file: &std::fs::File, random: &mut Random) -> io::Result<()> {
    let hole = part(span, random);
    match random.below(3) {
        0 => {
            file.set_len(0)?;
            file.set_len(span.len_bytes() as u64)
        }
        1 => {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            sys::fallocate(file, mode, hole.offset_in(span), hole.len_bytes())
        }
        _ => hole.advise(libc::MADV_REMOVE),
    }
}

/// free and malloc, or realloc; the block may move.
fn reallocate(memory: &mut Memory, block: Option<Block>, random: &mut Random) -> io::Result<()> {
    let len = (8 + random.below(120)) * PAGE_BYTES;
    let block = match block {
        Some(block) if random.one_in(2) => block.resize(len)?,
        Some(block) => {
            block.free();
            if random.one_in(8) {
                sys::trim_heap();
            }
            Block::new(len)?
        }
        None => Block::new(len)?,
    };
    memory.span = block.interior();
    memory.stuff = Stuff::Heap(Some(block));
    Ok(())
}
