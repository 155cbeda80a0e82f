//! memfds: checked at each lookup.

use std::fs::File;
use std::os::fd::AsRawFd;

use pindown_core::{Stamp, Validity};

use super::*;
use crate::sys::files::has_multigrain_ctime;
use crate::sys::test_memory::{Memory, madvise, map_over, memfd, touch};

/// A mapped memfd of 8 pages with the middle 4 subscribed.
struct Mapped {
    file: File,
    memory: Memory,
    stamp: Stamp,
}

impl Mapped {
    fn new(rig: &Rig, seals: i32) -> Self {
        let file = memfd(8);
        let memory = Memory::of_file(&file, 8, true);
        if seals != 0 {
            // SAFETY: F_ADD_SEALS takes an integer.
            assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
        }
        touch(memory.pages(0, 8), 1);
        match rig.subscribe(memory.pages(2, 4)) {
            Subscription::Checked(stamp) => Self { file, memory, stamp },
            other => panic!("{other:?}"),
        }
    }

    fn range(&self) -> PageRange {
        self.memory.pages(2, 4)
    }

    fn is_valid(&self, rig: &Rig) -> bool {
        rig.monitor.validate(self.range(), self.stamp) == Validity::Valid
    }
}

fn rig() -> Option<Rig> {
    if !has_multigrain_ctime() {
        println!("skipped: ctime is coarse before Linux 6.13");
        return None;
    }
    Rig::new()
}

#[test]
fn losing_pages_is_seen() {
    let Some(rig) = rig() else { return };
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    type Change = fn(&Mapped, i32);
    let changes: [(&str, Change); 4] = [
        ("truncate", |m, _| {
            m.file.set_len(0).unwrap();
            m.file.set_len(8 * 4096).unwrap();
        }),
        ("punch", |m, punch| {
            // SAFETY: changes the test's file only.
            assert_eq!(unsafe { libc::fallocate(m.file.as_raw_fd(), punch, 2 * 4096, 4096) }, 0);
        }),
        ("MADV_REMOVE", |m, _| madvise(m.range(), libc::MADV_REMOVE).unwrap()),
        ("O_TRUNC", |m, _| {
            let path = format!("/proc/self/fd/{}", m.file.as_raw_fd());
            File::create(path).unwrap().set_len(8 * 4096).unwrap();
        }),
    ];
    for (name, change) in changes {
        let mapped = Mapped::new(&rig, 0);
        assert!(mapped.is_valid(&rig), "{name}: before");
        change(&mapped, punch);
        touch(mapped.range(), 2);
        assert!(!mapped.is_valid(&rig), "{name}");
    }
}

#[test]
fn stores_and_readings_keep_it() {
    let Some(rig) = rig() else { return };
    let mapped = Mapped::new(&rig, 0);
    for i in 0..100 {
        touch(mapped.range(), i);
        assert!(mapped.is_valid(&rig));
    }
    madvise(mapped.range(), libc::MADV_DONTNEED).unwrap(); // the pages stay the file's
    assert!(mapped.is_valid(&rig));
}

#[test]
fn what_uffd_does_not_report_is_seen() {
    let Some(rig) = rig() else { return };
    let mapped = Mapped::new(&rig, 0);
    // SAFETY: the test's own mapping; `remap_file_pages` shows other pages of its file there.
    let rc = unsafe { libc::remap_file_pages(mapped.range().start() as *mut _, 4096, 0, 6, 0) };
    assert_eq!(rc, 0);
    assert!(!mapped.is_valid(&rig), "remap_file_pages");

    let mapped = Mapped::new(&rig, 0);
    // SAFETY: a segment of the test's own, attached over its own mapping, gone with it.
    unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, 4 * 4096, 0o600 | libc::IPC_CREAT);
        let at = libc::shmat(id, mapped.range().start() as *const _, libc::SHM_REMAP);
        libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
        assert_eq!(at as usize, mapped.range().start());
    }
    assert!(!mapped.is_valid(&rig), "SHM_REMAP");
}

#[test]
fn another_mapping_in_its_place_is_seen_and_the_same_pages_again_are_right() {
    let Some(rig) = rig() else { return };
    let mapped = Mapped::new(&rig, 0);
    map_over(mapped.range());
    assert!(!mapped.is_valid(&rig));
    let (at, len) = (mapped.range().start() as *mut libc::c_void, mapped.range().len_bytes());
    let (flags, fd) = (libc::MAP_SHARED | libc::MAP_FIXED, mapped.file.as_raw_fd());
    // SAFETY: the test's own memory again shows its file.
    unsafe { libc::mmap(at, len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 2 * 4096) };
    assert!(mapped.is_valid(&rig), "the same pages of the same file");
}

#[test]
fn several_mappings_of_one_file_under_one_range() {
    let Some(rig) = rig() else { return };
    let mapped = Mapped::new(&rig, 0);
    let protect = |prot| {
        // SAFETY: the test's own memory, read again only as allowed.
        assert_eq!(unsafe { libc::mprotect((mapped.range().start() + 4096) as *mut _, 4096, prot) }, 0);
    };
    protect(libc::PROT_READ);
    assert!(mapped.is_valid(&rig), "the same pages in three mappings");
    assert!(matches!(rig.subscribe(mapped.range()), Subscription::Checked(_)));
    map_over(PageRange::new(mapped.range().start() + 4096, mapped.range().start() + 8192).unwrap());
    assert!(!mapped.is_valid(&rig), "one of them is another's");
    assert!(matches!(rig.subscribe(mapped.range()), Subscription::Uncacheable(_)));
}

#[test]
fn a_closed_or_reused_descriptor_is_not_trusted() {
    let Some(rig) = rig() else { return };
    let mut mapped = Mapped::new(&rig, 0);
    let raw = mapped.file.as_raw_fd();
    let other = memfd(8);
    // SAFETY: the test's own descriptors; `raw` is the other file afterwards.
    unsafe { libc::dup2(other.as_raw_fd(), raw) };
    assert!(!mapped.is_valid(&rig));
    assert!(matches!(rig.subscribe(mapped.range()), Subscription::Uncacheable(_)), "no descriptor for it");
    mapped.file = other;
    std::mem::drop(mapped);
}

#[test]
fn seals_take_the_place_of_ctime() {
    let Some(rig) = Rig::new() else { return };
    let mapped = Mapped::new(&rig, libc::F_SEAL_SHRINK | libc::F_SEAL_FUTURE_WRITE);
    // SAFETY: closes the test's descriptor early; `into_raw_fd` would only hide it.
    unsafe { libc::fchmod(mapped.file.as_raw_fd(), 0o600) }; // changes ctime, takes no page
    assert!(mapped.is_valid(&rig));
    map_over(mapped.range());
    assert!(!mapped.is_valid(&rig));
}
