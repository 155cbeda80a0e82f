//! Each event on anonymous memory.

use std::fs::File;
use std::sync::Arc;

use super::*;
use crate::sys::test_memory::{Memory, madvise, map_over, mremap_onto, mremap_shrink, munmap, touch};
use crate::sys::uffd as sys_uffd;
use std::os::fd::AsRawFd;

/// Arms 8 pages, makes `change` to pages 2 to 5 of them, and returns what was heard of these.
fn change(rig: &Rig, change: impl Fn(PageRange) + Copy + 'static) -> Vec<EventKind> {
    heard(rig, || {
        let memory = Memory::anonymous(8);
        touch(memory.pages(0, 8), 1);
        assert_eq!(wait_out_grace(rig, memory.pages(0, 8)), Subscription::Events);
        let part = memory.pages(2, 4);
        let act = move || {
            change(part);
            std::mem::forget(memory); // its end would be an event of its own
        };
        (part, Box::new(act))
    })
}

#[test]
fn unmapping_and_mapping_over() {
    let Some(rig) = Rig::new() else { return };
    assert!(change(&rig, munmap).contains(&EventKind::Unmap));
    assert!(change(&rig, map_over).contains(&EventKind::Unmap));
}

#[test]
fn moving() {
    let Some(rig) = Rig::new() else { return };
    let away = |flags| {
        move |range: PageRange| {
            let other = Memory::anonymous(4);
            mremap_onto(range, other.pages(0, 4), flags).unwrap();
        }
    };
    assert!(change(&rig, away(0)).contains(&EventKind::Remap));
    assert!(change(&rig, away(libc::MREMAP_DONTUNMAP)).contains(&EventKind::Remap));
    let onto = |range: PageRange| {
        let other = Memory::anonymous(4);
        mremap_onto(other.pages(0, 4), range, 0).unwrap();
    };
    assert!(change(&rig, onto).contains(&EventKind::Unmap));
    assert!(change(&rig, |range| mremap_shrink(range, 1)).contains(&EventKind::Unmap));
}

#[test]
fn discarding() {
    let Some(rig) = Rig::new() else { return };
    const DONTNEED_LOCKED: i32 = 24;
    for advice in [libc::MADV_DONTNEED, DONTNEED_LOCKED, libc::MADV_FREE] {
        let kinds = change(&rig, move |range| madvise(range, advice).unwrap());
        assert!(kinds.contains(&EventKind::Remove), "advice {advice}: {kinds:?}");
    }
}

#[test]
fn what_changes_no_page_is_not_reported() {
    let Some(rig) = Rig::new() else { return };
    let quiet = |range: PageRange| {
        madvise(range, libc::MADV_WILLNEED).unwrap();
        touch(range, 7);
    };
    assert_eq!(change(&rig, quiet), []);
}

#[test]
fn whole_mappings_are_armed_and_stay_whole() {
    let Some(rig) = Rig::new() else { return };
    let memory = Memory::anonymous(64);
    touch(memory.pages(0, 64), 1);
    assert_eq!(wait_out_grace(&rig, memory.pages(30, 2)), Subscription::Events);
    let procmap = crate::sys::procmap::ProcMap::open().unwrap();
    let vma = procmap.find(memory.addr(), false).unwrap().unwrap();
    assert_eq!(vma.range(), Some(memory.pages(0, 64)));
    // So the application's own mremap of it still works (EFAULT across a split).
    let other = Memory::anonymous(64);
    mremap_onto(memory.pages(0, 64), other.pages(0, 64), 0).unwrap();
    map_over(memory.pages(0, 64));
}

/// A survey that is out of date when it is acted on splits a mapping; so does memory mapped beside
/// an armed mapping, which the kernel would else have merged with it.
#[test]
fn pieces_of_a_mapping_are_joined_again() {
    let Some(rig) = Rig::new() else { return };
    let memory = Memory::anonymous(64);
    touch(memory.pages(0, 64), 1);
    let joined = rig.monitor.joined.read().unwrap();
    let hub = &joined.as_ref().unwrap().0;
    sys_uffd::arm(hub.fd.raw(), memory.pages(20, 10)).unwrap(); // as that survey would have it
    let vma_at = |page| hub.procmap.find(memory.pages(page, 1).start(), false).unwrap().unwrap();
    assert_eq!(vma_at(25).range(), Some(memory.pages(20, 10)), "split");
    assert_eq!(wait_out_grace(&rig, memory.pages(22, 1)), Subscription::Events);
    assert_eq!(vma_at(25).range(), Some(memory.pages(0, 64)), "whole again");
}

#[test]
fn huge_pages_of_the_pool() {
    let Some(rig) = Rig::new() else { return };
    const PAGES: usize = 512;
    let discard = |range: PageRange| madvise(range, libc::MADV_DONTNEED).unwrap();
    for (kind, change) in [(EventKind::Remove, discard as fn(PageRange)), (EventKind::Unmap, munmap)] {
        let kinds = heard(&rig, || {
            let Some(memory) = Memory::huge() else {
                println!("skipped: no huge pages in the pool (vm.nr_hugepages)");
                return (PageRange::new(0x10000, 0x11000).unwrap(), Box::new(|| ()));
            };
            touch(memory.pages(0, 2 * PAGES), 1);
            assert_eq!(wait_out_grace(&rig, memory.pages(PAGES, PAGES)), Subscription::Events);
            let part = memory.pages(PAGES, PAGES);
            (
                part,
                Box::new(move || {
                    change(part);
                    munmap(memory.pages(0, PAGES));
                    std::mem::forget(memory);
                }),
            )
        });
        assert!(kinds.is_empty() || kinds.contains(&kind), "{kinds:?}");
        println!("huge pages: {kinds:?}");
    }
}

#[test]
fn several_mappings_under_one_range() {
    let Some(rig) = Rig::new() else { return };
    let memory = Memory::anonymous(9);
    touch(memory.pages(0, 9), 1);
    // SAFETY: the test's own memory; its content stays.
    let rc = unsafe { libc::mprotect((memory.addr() + 3 * 4096) as *mut _, 3 * 4096, libc::PROT_READ) };
    assert_eq!(rc, 0);
    assert_eq!(wait_out_grace(&rig, memory.pages(1, 7)), Subscription::Events);
    let last = memory.pages(7, 1);
    assert!(rig.hear(last, || munmap(last)).is_none_or(|k| k.contains(&EventKind::Unmap)));
    map_over(last);
    munmap(memory.pages(4, 1));
    assert!(matches!(rig.subscribe(memory.pages(1, 7)), Subscription::Uncacheable(_)), "a hole");
    map_over(memory.pages(4, 1));
}

#[test]
fn heap_and_stack_are_covered() {
    let Some(rig) = Rig::new() else { return };
    let heap = "on the heap".to_owned();
    let stack = std::hint::black_box([1u8; 64]);
    for addr in [heap.as_ptr() as usize, stack.as_ptr() as usize] {
        let range = PageRange::covering(addr, 64).unwrap();
        assert_eq!(wait_out_grace(&rig, range), Subscription::Events);
    }
}

#[test]
fn another_userfaultfd_is_a_conflict() {
    let Some(rig) = Rig::new() else { return };
    let memory = Memory::anonymous(4);
    touch(memory.pages(0, 4), 1);
    let other = sys_uffd::open().unwrap();
    sys_uffd::arm(other.as_raw_fd(), memory.pages(0, 4)).unwrap();
    let error = rig.monitor.subscribe(memory.pages(1, 1), Access::READ_WRITE).unwrap_err();
    assert!(matches!(error, MonitorError::Conflict { .. }), "{error}");
    sys_uffd::disarm(other.as_raw_fd(), memory.pages(0, 4)).unwrap();
    assert_eq!(wait_out_grace(&rig, memory.pages(1, 1)), Subscription::Events);
}

#[test]
fn two_monitors_of_a_process_hear_the_same() {
    let (Some(one), Some(two)) = (Rig::new(), Rig::new()) else { return };
    let kinds = heard(&two, || {
        let memory = Arc::new(Memory::anonymous(4));
        touch(memory.pages(0, 4), 1);
        assert_eq!(wait_out_grace(&one, memory.pages(0, 4)), Subscription::Events);
        assert_eq!(wait_out_grace(&two, memory.pages(0, 4)), Subscription::Events);
        (memory.pages(0, 4), Box::new(move || drop(memory)))
    });
    assert!(kinds.contains(&EventKind::Unmap));
    drop(one);
    let memory = Memory::anonymous(4);
    touch(memory.pages(0, 4), 1);
    assert_eq!(wait_out_grace(&two, memory.pages(0, 4)), Subscription::Events);
}

#[test]
fn stopped_it_watches_nothing_and_starts_again() {
    let Some(rig) = Rig::new() else { return };
    let memory = Memory::anonymous(4);
    touch(memory.pages(0, 4), 1);
    rig.monitor.stop();
    rig.monitor.stop();
    assert!(matches!(rig.subscribe(memory.pages(0, 4)), Subscription::Uncacheable(_)));
    rig.monitor.start(rig.heard.clone()).unwrap();
    assert_eq!(wait_out_grace(&rig, memory.pages(0, 4)), Subscription::Events);
}

#[test]
fn refused_kinds_say_why() {
    let Some(rig) = Rig::new() else { return };
    let exe = File::open("/proc/self/exe").unwrap();
    let refused = [
        Memory::shared_anonymous(2),
        Memory::of_file_read_only(&exe, 2),
        Memory::of_file(&crate::sys::test_memory::memfd(2), 2, false),
    ];
    for memory in &refused {
        let answer = rig.subscribe(memory.pages(0, 2));
        assert!(matches!(answer, Subscription::Uncacheable(_)), "{answer:?}");
    }
    let unmapped = PageRange::new(0x10000, 0x11000).unwrap();
    assert!(matches!(rig.subscribe(unmapped), Subscription::Uncacheable(_)));
}
