//! Other processes that share or copy the address space.

use std::io;

use super::super::event::{Event, Group};
use super::super::scene::Scene;
use crate::sys;

#[rustfmt::skip]
pub(crate) const EVENTS: &[Event] = &[
    event("vfork-child-munmap", |s| sys::unmap_in_sharing_child(s.span(), true)),
    event("clone-vm-munmap", |s| sys::unmap_in_sharing_child(s.span(), false)),
    event("fork-child-writes", |s| sys::fork_child(s.span(), false)).not_on(super::super::traits::Traits::READ_ONLY),
    event("fork-child-munmap", |s| sys::fork_child(s.span(), true)),
];

const fn event(name: &'static str, act: fn(&mut Scene) -> io::Result<()>) -> Event {
    Event::new(Group::Process, name, act)
}
