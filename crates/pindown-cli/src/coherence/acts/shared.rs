//! System V segments and remap_file_pages.

use std::io;

use super::super::event::{Event, Group};
use super::super::scene::Scene;
use super::super::traits::Traits;
use crate::sys::{self, Segment};

#[rustfmt::skip]
pub(crate) const EVENTS: &[Event] = &[
    event("shmdt", |s| sys::detach(s.span())).on(Traits::SYSV),
    event("shmat-shm-remap", |s| Segment::new(s.span().len_bytes())?.attach_over(s.span())).on(Traits::SYSV),
    event("remap-file-pages", remap_pages).on(Traits::SHARED).not_on(Traits::HUGE),
];

const fn event(name: &'static str, act: fn(&mut Scene) -> io::Result<()>) -> Event {
    Event::new(Group::SharedMemory, name, act)
}

/// The first page's place shows the fifth.
fn remap_pages(scene: &mut Scene) -> io::Result<()> {
    sys::remap_file_page(scene.span().part(0, scene.memory.page_bytes), 4)
}
