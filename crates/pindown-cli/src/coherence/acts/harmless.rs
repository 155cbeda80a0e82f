//! Negative rows: what looks alarming and leaves the registered pages where they are.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use super::super::event::{Event, Group};
use super::super::scene::Scene;
use super::super::traits::Traits;
use super::HEMMED_IN;
use super::file::write_over;
use crate::sys::{self, PAGE_BYTES, Source, Via};

const MADV_COLLAPSE: i32 = 25;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const PLAIN: Traits = Traits::PRIVATE.with(Traits::ANON);
const KSM: &str = "/sys/kernel/mm/ksm";

#[rustfmt::skip]
pub(crate) const EVENTS: &[Event] = &[
    event("mprotect-none-and-back", |s| protect_and_back(s, libc::PROT_NONE)),
    event("mprotect-read-and-back", |s| protect_and_back(s, libc::PROT_READ)),
    event("mlock-munlock", |s| { sys::lock_pages(s.span(), true)?; sys::lock_pages(s.span(), false) }),
    event("mremap-grow-in-place", |s| sys::resize_in_place(s.span(), s.span().len_bytes() + s.memory.page_bytes)).not_on(HEMMED_IN.with(Traits::SYSV)).after(make_room),
    event("madvise-willneed", |s| s.span().advise(libc::MADV_WILLNEED)),
    event("madvise-cold", |s| s.span().advise(libc::MADV_COLD)),
    event("madvise-pageout", |s| s.span().advise(libc::MADV_PAGEOUT)),
    event("madvise-collapse", collapse).on(Traits::THP),
    event("thp-split-by-mprotect", |s| { let page = s.span().part(PAGE_BYTES, PAGE_BYTES); page.protect(libc::PROT_READ)?; page.protect(READ_WRITE) }).on(Traits::THP),
    event("zero-page-read-before", |_| Ok(())).on(PLAIN).not_on(Traits::HUGE).after(read_zero_pages),
    event("process-vm-writev", |s| sys::process_vm_write(s.one_page(), &[0xAB; 512])).not_on(Traits::READ_ONLY),
    event("proc-self-mem-write", |s| sys::poke(s.one_page(), &[0xAC; 512])).not_on(Traits::HUGE),
    event("ksm", merge_same_pages).on(PLAIN).not_on(HEMMED_IN.with(Traits::HUGE).with(Traits::THP).with(Traits::READ_ONLY)),
    event("compact-memory", |_| fs::write("/proc/sys/vm/compact_memory", "1")).on(PLAIN).not_on(HEMMED_IN.with(Traits::READ_ONLY)),
    event("file-write", |s| write_over(s, 0)).on(Traits::FILE),
    event("fadvise-dontneed", |s| sys::drop_page_cache(s.file()?)).on(Traits::FILE),
    event("msync-invalidate", |s| sys::sync_pages(s.span(), libc::MS_SYNC | libc::MS_INVALIDATE)).on(Traits::FILE),
];

const fn event(name: &'static str, act: fn(&mut Scene) -> io::Result<()>) -> Event {
    Event::new(Group::Harmless, name, act)
}

fn protect_and_back(scene: &mut Scene, prot: i32) -> io::Result<()> {
    scene.span().protect(prot)?;
    scene.span().protect(READ_WRITE)
}

/// Unmaps what follows in the arena, for the memory to grow into.
fn make_room(scene: &mut Scene) -> io::Result<()> {
    let (len, page) = (scene.span().len_bytes(), scene.memory.page_bytes);
    sys::unmap(scene.arena.place(0, len + page).part(len, page), Via::Libc)
}

/// Collapsing fails while the pages are pinned (EAGAIN, EBUSY); that is right too.
fn collapse(scene: &mut Scene) -> io::Result<()> {
    match scene.span().advise(MADV_COLLAPSE) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => Ok(()),
        result => result,
    }
}

/// Before registration the memory shows the kernel's zero page.
fn read_zero_pages(scene: &mut Scene) -> io::Result<()> {
    scene.span().advise(libc::MADV_DONTNEED)?;
    scene.span().touch_for_read();
    Ok(())
}

/// A twin with the same bytes, and the merging thread over both.
fn merge_same_pages(scene: &mut Scene) -> io::Result<()> {
    let twin = scene.scratch();
    sys::map_over(twin, Source::Anonymous { shared: false, huge: false }, Via::Libc)?;
    twin.write(&scene.span().snapshot());
    scene.span().advise(libc::MADV_MERGEABLE)?;
    twin.advise(libc::MADV_MERGEABLE)?;
    let before = fs::read_to_string(format!("{KSM}/run"))?;
    let result = wait_for_scans(2);
    fs::write(format!("{KSM}/run"), before.trim())?;
    result
}

fn wait_for_scans(scans: u64) -> io::Result<()> {
    let (start, deadline) = (full_scans()?, Instant::now() + Duration::from_secs(4));
    while full_scans()? < start + scans {
        if Instant::now() > deadline {
            return Err(io::Error::other("the same-page merger did not finish two scans in 4 s"));
        }
        fs::write(format!("{KSM}/run"), "1")?; // needs root
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn full_scans() -> io::Result<u64> {
    fs::read_to_string(format!("{KSM}/full_scans"))?.trim().parse().map_err(io::Error::other)
}
