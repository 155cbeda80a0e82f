//! mremap.

use std::io;

use super::super::event::{Event, Group};
use super::super::scene::Scene;
use super::super::traits::Traits;
use super::HEMMED_IN;
use crate::sys::{self, Source, Via};

#[rustfmt::skip]
pub(crate) const EVENTS: &[Event] = &[
    event("mremap-move", |s| sys::move_onto(s.span(), s.elsewhere(), Via::Libc)),
    event("mremap-move-raw", |s| sys::move_onto(s.span(), s.elsewhere(), Via::Raw)),
    event("mremap-move-part", |s| sys::move_onto(s.middle(), s.elsewhere().part(0, s.middle().len_bytes()), Via::Libc)),
    event("mremap-shrink", |s| sys::resize_in_place(s.span(), s.span().half(false).len_bytes())),
    event("mremap-shrink-grow", shrink_grow).not_on(HEMMED_IN),
    event("mremap-grow-move", |s| sys::grow_moving(s.span(), 2 * s.span().len_bytes())),
    event("mremap-onto", onto),
    event("mremap-dontunmap", |s| sys::move_pages_away(s.span())),
    event("uffdio-move", uffd_move).on(Traits::PRIVATE.with(Traits::ANON)).not_on(Traits::HUGE),
];

const fn event(name: &'static str, act: fn(&mut Scene) -> io::Result<()>) -> Event {
    Event::new(Group::Move, name, act)
}

/// What glibc's realloc does to a large block: 8M, 1M, 8M at one address.
fn shrink_grow(scene: &mut Scene) -> io::Result<()> {
    let whole = scene.span();
    sys::resize_in_place(whole, whole.half(false).len_bytes())?;
    sys::resize_in_place(whole.half(false), whole.len_bytes())
}

/// Another mapping is moved over the memory.
fn onto(scene: &mut Scene) -> io::Result<()> {
    let other = scene.scratch();
    sys::map_over(other, Source::Anonymous { shared: false, huge: false }, Via::Libc)?;
    other.fill(7);
    sys::move_onto(other, scene.span(), Via::Libc)
}

/// The kernel refuses while the pages are pinned; that refusal is right too.
fn uffd_move(scene: &mut Scene) -> io::Result<()> {
    let (from, to) = (scene.one_page(), scene.elsewhere().part(0, scene.memory.page_bytes));
    sys::map_over(to, Source::Anonymous { shared: false, huge: false }, Via::Libc)?;
    match sys::uffd_move(from, to) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
        result => result,
    }
}
