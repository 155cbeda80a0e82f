//! What the C library does by itself.

use std::io;

use super::super::event::{Event, Group};
use super::super::scene::{Held, Scene};
use super::super::traits::Traits;
use crate::sys::{self, Block};

#[rustfmt::skip]
pub(crate) const EVENTS: &[Event] = &[
    event("free", |s| { take_block(s)?.free(); Ok(()) }).on(Traits::MALLOC_MMAP),
    event("realloc-shrink-grow", realloc_shrink_grow).on(Traits::MALLOC_MMAP),
    event("realloc-grow", realloc_grow).on(Traits::MALLOC_MMAP),
    event("free-malloc-trim-malloc", free_and_trim).on(Traits::MALLOC).not_on(Traits::MALLOC_MMAP),
    event("malloc-trim", |_| { sys::trim_heap(); Ok(()) }).on(Traits::MALLOC),
    event("thread-exit-and-stack-reuse", reuse_stack).on(Traits::THREAD),
];

const fn event(name: &'static str, act: fn(&mut Scene) -> io::Result<()>) -> Event {
    Event::new(Group::Allocator, name, act)
}

fn take_block(scene: &mut Scene) -> io::Result<Block> {
    match scene.take_held() {
        Held::Block(block) => Ok(block),
        _ => Err(io::Error::other("not a block of malloc")),
    }
}

/// Fails unless the block still is where the memory under test is.
fn keep(scene: &mut Scene, block: Block) -> io::Result<()> {
    let same = block.interior().base() == scene.span().base();
    scene.memory.held = Held::Block(block);
    if same { Ok(()) } else { Err(io::Error::other("the allocator chose another address")) }
}

/// An ordinary `Vec` that shrinks and grows: mremap in place.
fn realloc_shrink_grow(scene: &mut Scene) -> io::Result<()> {
    let block = take_block(scene)?;
    let len = 1 << 20;
    let block = block.resize(len / 4)?.resize(len)?;
    keep(scene, block)
}

/// Grows; if the block moves, its former place is mapped anew before it is used again.
fn realloc_grow(scene: &mut Scene) -> io::Result<()> {
    let block = take_block(scene)?.resize(24 << 20)?;
    scene.memory.held = Held::Block(block);
    Ok(())
}

/// The heap's free pages go back to the kernel, and malloc hands out the same block again.
fn free_and_trim(scene: &mut Scene) -> io::Result<()> {
    take_block(scene)?.free();
    sys::trim_heap();
    let block = Block::new(super::super::mapping::HEAP_BLOCK)?;
    keep(scene, block)
}

fn reuse_stack(scene: &mut Scene) -> io::Result<()> {
    let Held::Thread(thread) = scene.take_held() else {
        return Err(io::Error::other("not a thread's stack"));
    };
    scene.memory.held = Held::Thread(thread.replace()?);
    Ok(())
}
