//! munmap, MAP_FIXED and the program break.

use std::io;
use std::os::fd::AsFd;

use super::super::event::{Event, Group};
use super::super::scene::{Held, Scene};
use super::super::traits::Traits;
use super::HEMMED_IN;
use crate::sys::{self, PAGE_BYTES, Source, Via};

const ANONYMOUS: Source<'static> = Source::Anonymous { shared: false, huge: false };

#[rustfmt::skip]
pub(crate) const EVENTS: &[Event] = &[
    event("munmap-whole", |s| sys::unmap(s.span(), Via::Libc)),
    event("munmap-part", |s| sys::unmap(s.middle(), Via::Libc)),
    event("munmap-inside-huge-page", |s| sys::unmap(s.span().part(PAGE_BYTES, PAGE_BYTES), Via::Libc)).on(Traits::THP),
    event("munmap-across", |s| sys::unmap(s.middle(), Via::Libc)).not_on(Traits::HUGE).after(split),
    event("munmap-around", munmap_around).not_on(HEMMED_IN),
    event("munmap-raw", |s| sys::unmap(s.span(), Via::Raw)),
    event("map-fixed-whole", |s| sys::map_over(s.span(), ANONYMOUS, Via::Libc)),
    event("map-fixed-part", |s| sys::map_over(s.middle(), ANONYMOUS, Via::Libc)),
    event("map-fixed-raw", |s| sys::map_over(s.span(), ANONYMOUS, Via::Raw)),
    event("map-fixed-same-file", map_same_file).on(Traits::FILE),
    event("brk-shrink", |s| brk(s, false)).on(Traits::BRK),
    event("brk-shrink-grow", |s| brk(s, true)).on(Traits::BRK),
];

const fn event(name: &'static str, act: fn(&mut Scene) -> io::Result<()>) -> Event {
    Event::new(Group::Unmap, name, act)
}

/// Makes two mappings of the memory, so that one call crosses their border.
fn split(scene: &mut Scene) -> io::Result<()> {
    scene.span().half(true).advise(libc::MADV_DONTFORK)
}

fn munmap_around(scene: &mut Scene) -> io::Result<()> {
    sys::unmap(scene.arena.around(scene.span(), scene.memory.page_bytes), Via::Libc)
}

fn map_same_file(scene: &mut Scene) -> io::Result<()> {
    let shared = scene.memory.traits.any(Traits::SHARED);
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let source = Source::File { fd: scene.file()?.as_fd(), shared, offset: 0, prot };
    sys::map_over(scene.span(), source, Via::Libc)
}

fn brk(scene: &mut Scene, and_back: bool) -> io::Result<()> {
    let half = scene.span().half(true);
    let Held::Break(program_break) = &mut scene.memory.held else {
        return Err(io::Error::other("not the brk heap"));
    };
    program_break.move_to(half.base())?;
    if and_back {
        program_break.move_to(half.base() + half.len_bytes())?;
    }
    Ok(())
}
