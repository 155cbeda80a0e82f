//! madvise and its relatives.

use std::io;

use super::super::event::{Event, Group};
use super::super::scene::Scene;
use super::super::traits::Traits;
use crate::sys::{self, PAGE_BYTES};

const MADV_DONTNEED_LOCKED: i32 = 24;
const MADV_GUARD_INSTALL: i32 = 102;
const MADV_GUARD_REMOVE: i32 = 103;

/// The name under which monitors that do not see it waive it.
const GUARD: &str = "MADV_GUARD_INSTALL";

#[rustfmt::skip]
pub(crate) const EVENTS: &[Event] = &[
    event("madvise-dontneed", |s| s.span().advise(libc::MADV_DONTNEED)),
    event("madvise-dontneed-part", |s| s.middle().advise(libc::MADV_DONTNEED)),
    event("madvise-dontneed-inside-huge-page", |s| s.span().part(PAGE_BYTES, PAGE_BYTES).advise(libc::MADV_DONTNEED)).on(Traits::THP),
    event("madvise-dontneed-raw", |s| sys::madvise_raw(s.span(), libc::MADV_DONTNEED)),
    event("madvise-dontneed-locked", |s| s.span().advise(MADV_DONTNEED_LOCKED)),
    event("madvise-dontneed-mlocked", |s| s.span().advise(MADV_DONTNEED_LOCKED)).after(|s| sys::lock_pages(s.span(), true)),
    event("madvise-free", |s| s.span().advise(libc::MADV_FREE)),
    event("madvise-remove", |s| s.span().advise(libc::MADV_REMOVE)).on(Traits::SHARED),
    event("madvise-remove-part", |s| s.middle().advise(libc::MADV_REMOVE)).on(Traits::SHARED),
    event("madvise-guard-install", guard).waived_as(GUARD),
    event("process-madvise-dontneed", |s| sys::process_madvise_self(s.span(), libc::MADV_DONTNEED)),
    event("uring-madvise-dontneed", |s| s.ring()?.madvise(s.span(), libc::MADV_DONTNEED)),
    event("uring-madvise-remove", |s| s.ring()?.madvise(s.span(), libc::MADV_REMOVE)).on(Traits::SHARED),
];

const fn event(name: &'static str, act: fn(&mut Scene) -> io::Result<()>) -> Event {
    Event::new(Group::Advise, name, act)
}

/// Installing drops the pages (Linux 6.13; file mappings 6.15); removing lets the range be touched again.
fn guard(scene: &mut Scene) -> io::Result<()> {
    scene.span().advise(MADV_GUARD_INSTALL)?;
    scene.span().advise(MADV_GUARD_REMOVE)
}
