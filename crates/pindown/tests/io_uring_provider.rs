//! The io_uring provider against the kernel: what it registers, and what it refuses.
#![cfg(feature = "io-uring")]

mod support;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use pindown::provider::io_uring::{Mover, UringError, UringMr, UringProvider};
use pindown::{Access, Affinity, Limit, PAGE_SIZE, PageRange, Provider, RegisterError};
use support::{Map, become_plain_user, in_own_process, status_kib};

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

fn register(provider: &UringProvider, range: PageRange) -> Result<UringMr, RegisterError> {
    // SAFETY: the tests' memory is reached by pointer only while requests run.
    unsafe { provider.register(range, Access::READ_WRITE) }
}

fn provider_with(slots: u32) -> UringProvider {
    UringProvider::builder().slots(slots).on(IoUring::new(4).unwrap()).unwrap()
}

#[test]
fn bytes_move_both_ways_until_deregistration() {
    let map = Map::filled(4, 1);
    let mut mover = Mover::new(1, map.len()).unwrap();
    let provider = UringProvider::new(mover.ring()).unwrap();
    let mr = register(&provider, map.range()).unwrap();
    let key = provider.key(&mr);
    assert_eq!(mover.write_fixed(key, map.ptr(), map.len()).unwrap(), map.bytes());

    let news: Vec<u8> = (0..PAGE_SIZE * 2).map(|i| (i * 31 % 251) as u8).collect();
    let middle = map.ptr().wrapping_add(1000);
    // SAFETY: nothing refers to the mapping.
    unsafe { mover.read_fixed(key, middle, &news) }.unwrap();
    assert_eq!(map.bytes()[1000..][..news.len()], news);
    assert_eq!(map.bytes()[999], 1);

    let beyond = mover.write_fixed(key, map.ptr().wrapping_add(1), map.len()).unwrap_err();
    assert_eq!(beyond.raw_os_error(), Some(libc::EFAULT));
    assert!(!key.covers(map.ptr().wrapping_add(1), map.len()));
    assert_eq!(provider.registered(), 1);
    provider.deregister(mr).unwrap();
    assert_eq!(provider.registered(), 0);
    let gone = mover.write_fixed(key, map.ptr(), map.len()).unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(libc::EFAULT));
}

/// Why a cache needs a monitor: a registration outlives its mapping and serves the old pages without an error.
#[test]
fn a_kept_registration_sends_the_bytes_of_unmapped_memory() {
    in_own_process("a_kept_registration_sends_the_bytes_of_unmapped_memory", || {
        let map = Map::filled(4, b'o');
        let mut mover = Mover::new(1, map.len()).unwrap();
        let provider = UringProvider::new(mover.ring()).unwrap();
        let old = register(&provider, map.range()).unwrap();
        map.unmap_and_map_again();
        map.fill(b'n');
        let sent = mover.write_fixed(provider.key(&old), map.ptr(), map.len()).unwrap();
        assert!(sent.iter().all(|b| *b == b'o'), "this kernel has no hazard to be protected from");
        let new = register(&provider, map.range()).unwrap();
        let sent = mover.write_fixed(provider.key(&new), map.ptr(), map.len()).unwrap();
        assert!(sent.iter().all(|b| *b == b'n'));
        provider.deregister(old).unwrap();
        provider.deregister(new).unwrap();
    });
}

#[test]
fn a_batch_registers_what_precedes_a_bad_range() {
    let map = Map::filled(6, 3);
    map.hole(4);
    let mut mover = Mover::new(1, PAGE_SIZE).unwrap();
    let provider = UringProvider::new(mover.ring()).unwrap();
    let pages: Vec<_> = (0..6).map(|i| map.page(i)).collect();
    // SAFETY: as in `register`.
    let (mrs, error) = unsafe { provider.register_batch(&pages, Access::READ) };
    assert_eq!(mrs.len(), 4);
    assert!(matches!(error, Some(RegisterError::Unsupported { range, .. }) if range == pages[4]));
    assert_eq!(provider.registered(), 4);
    for (mr, page) in mrs.iter().zip(&pages) {
        let key = provider.key(mr);
        assert_eq!(key.range(), *page);
        let addr = std::ptr::with_exposed_provenance(page.start());
        assert_eq!(mover.write_fixed(key, addr, PAGE_SIZE).unwrap(), [3; PAGE_SIZE]);
    }
    mrs.into_iter().for_each(|mr| provider.deregister(mr).unwrap());
    assert_eq!(provider.registered(), 0);
}

#[test]
fn a_batch_fills_the_slots_that_are_left_wherever_they_are() {
    let map = Map::filled(12, 3);
    let provider = provider_with(8);
    let pages: Vec<_> = (0..12).map(|i| map.page(i)).collect();
    let held: Vec<_> = (0..3).map(|i| register(&provider, pages[i]).unwrap()).collect();
    let middle = held.into_iter().nth(1).unwrap(); // the other two stay registered for good
    provider.deregister(middle).unwrap();
    // SAFETY: as in `register`.
    let (mrs, error) = unsafe { provider.register_batch(&pages, Access::READ) };
    let mut slots: Vec<_> = mrs.iter().map(|mr| provider.key(mr).buf_index()).collect();
    slots.sort_unstable();
    assert_eq!(slots, [1, 3, 4, 5, 6, 7]);
    assert!(matches!(error, Some(RegisterError::Limit { limit: Limit::Slots, value: Some(8), .. })));
}

#[test]
fn exhausted_slots_are_a_limit_and_come_back() {
    let map = Map::filled(5, 0);
    let provider = provider_with(4);
    assert_eq!(provider.caps().max_regions, 4);
    let mut mrs: Vec<_> = (0..4).map(|i| register(&provider, map.page(i)).unwrap()).collect();
    let error = register(&provider, map.page(4)).unwrap_err();
    assert!(matches!(error, RegisterError::Limit { limit: Limit::Slots, value: Some(4), .. }));
    assert!(error.evicting_may_help());
    provider.deregister(mrs.remove(2)).unwrap();
    mrs.push(register(&provider, map.page(4)).unwrap());
    mrs.into_iter().for_each(|mr| provider.deregister(mr).unwrap());
}

#[test]
fn memlock_of_a_plain_user_is_a_limit_with_its_value() {
    in_own_process("memlock_of_a_plain_user_is_a_limit_with_its_value", || {
        become_plain_user(64 << 10);
        let map = Map::filled(64, 0);
        // The limit is for all processes of the user, and newer kernels count the rings themselves:
        // others may be in the way for a while.
        let deadline = Instant::now() + Duration::from_secs(20);
        let provider = loop {
            match IoUring::new(4) {
                Ok(ring) => break UringProvider::builder().slots(8).on(ring).unwrap(),
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        };
        let error = register(&provider, map.range()).unwrap_err();
        let expected =
            matches!(error, RegisterError::Limit { limit: Limit::Memlock, value: Some(65536), .. });
        assert!(expected, "{error:?}");
        assert!(error.to_string().contains("ulimit -l"), "{error}");
        // Within the limit it works, and what was given back counts no more.
        for round in 0..20 {
            match register(&provider, map.page(round)) {
                Ok(mr) => provider.deregister(mr).unwrap(),
                Err(error) => assert!(error.evicting_may_help() && Instant::now() < deadline, "{error}"),
            }
        }
    });
}

#[test]
fn longer_than_a_gibibyte_is_a_limit() {
    let provider = provider_with(8);
    let range = PageRange::new(PAGE_SIZE, 2 * PAGE_SIZE + (1 << 30)).unwrap();
    let error = register(&provider, range).unwrap_err();
    assert!(!error.evicting_may_help());
    let RegisterError::Limit { limit, value, .. } = error else { panic!("{error:?}") };
    assert_eq!((limit, value), (Limit::RegionBytes, Some(1 << 30)));
}

/// `why` is what the message names, on kernels that say what is mapped where (Linux 6.11).
fn refused(provider: &UringProvider, what: &str, range: PageRange, why: &str) {
    // SAFETY: as in `register`; reading is all that is asked for.
    let error = unsafe { provider.register(range, Access::READ) }.expect_err(what);
    assert!(matches!(error, RegisterError::Unsupported { .. }), "{what}: {error:?}");
    assert!(
        error.to_string().contains(why) || error.to_string().contains("pins every page"),
        "{what}: {error}"
    );
}

#[test]
fn memory_that_cannot_be_pinned_is_unsupported() {
    let provider = provider_with(8);
    refused(&provider, "unmapped", PageRange::covering(PAGE_SIZE, PAGE_SIZE).unwrap(), "not mapped");
    let none = Map::new(None, 2, libc::PROT_NONE, libc::MAP_PRIVATE, -1).unwrap();
    refused(&provider, "PROT_NONE", none.range(), "not writable");
    let read_only = Map::new(None, 2, libc::PROT_READ, libc::MAP_PRIVATE, -1).unwrap();
    refused(&provider, "read-only", read_only.range(), "not writable");
    let hole = Map::filled(3, 0);
    hole.hole(1);
    refused(&provider, "with a hole", hole.range(), "not writable");
    let memfd = memfd(1);
    let beyond = Map::new(None, 2, READ_WRITE, libc::MAP_SHARED, memfd.as_raw_fd()).unwrap();
    refused(&provider, "beyond the end of its file", beyond.range(), "end of their file");
    assert!(register(&provider, beyond.page(0)).is_ok(), "a memfd within its size is registered");
    match secret_memory() {
        Some(map) => refused(&provider, "memfd_secret", map.range(), "memfd_secret"),
        None => println!("skipped: no memfd_secret here"),
    }
    assert_eq!(provider.registered(), 1);
}

#[test]
fn a_shared_mapping_of_a_disk_file_is_unsupported() {
    let path =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("shared-{}", std::process::id()));
    let options = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let Ok(file) = options else { return println!("skipped: cannot write to {}", path.display()) };
    file.set_len(8192).unwrap();
    std::fs::remove_file(&path).unwrap();
    // SAFETY: statfs is plain data; the kernel fills it.
    let kind = unsafe {
        let mut fs: libc::statfs = std::mem::zeroed();
        libc::fstatfs(file.as_raw_fd(), &mut fs);
        fs.f_type
    };
    let provider = provider_with(8);
    let map = Map::new(None, 2, READ_WRITE, libc::MAP_SHARED, file.as_raw_fd()).unwrap();
    if kind == libc::TMPFS_MAGIC {
        return println!("skipped: the target directory is on tmpfs, whose files can be pinned");
    }
    refused(&provider, "shared file", map.range(), "shared mapping");
    let private = Map::new(None, 2, READ_WRITE, libc::MAP_PRIVATE, file.as_raw_fd()).unwrap();
    assert!(register(&provider, private.range()).is_ok(), "a private mapping of it is registered");
}

fn memfd(pages: usize) -> OwnedFd {
    // SAFETY: a constant name, a new descriptor that nobody else owns, a size.
    unsafe {
        let fd = OwnedFd::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC));
        assert_eq!(libc::ftruncate(fd.as_raw_fd(), (pages * PAGE_SIZE) as i64), 0);
        fd
    }
}

fn secret_memory() -> Option<Map> {
    // SAFETY: takes flags, returns a descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_secret, 0) } as i32;
    if fd < 0 {
        return None;
    }
    // SAFETY: just made.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: a descriptor of ours and a size.
    unsafe { libc::ftruncate(fd.as_raw_fd(), PAGE_SIZE as i64) };
    Map::new(None, 1, READ_WRITE, libc::MAP_SHARED, fd.as_raw_fd()).ok()
}

/// A page of the system's pool of huge pages, if one is free or can be added for the test.
fn hugetlb_page() -> Option<Map> {
    let flags = libc::MAP_PRIVATE | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
    let map = || Map::new(None, 512, READ_WRITE, flags, -1);
    let pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    map().ok().or_else(|| {
        let reserved: u32 = std::fs::read_to_string(pool).ok()?.trim().parse().ok()?;
        std::fs::write(pool, (reserved + 1).to_string()).ok()?;
        let page = map().ok();
        std::fs::write(pool, reserved.to_string()).ok()?; // goes when it is unmapped
        page
    })
}

#[test]
fn huge_pages_of_the_pool_are_released_at_once() {
    let provider = provider_with(8);
    let small = Map::filled(4, 0);
    let mr = register(&provider, small.range()).unwrap();
    assert!(!provider.release_at_once(&mr));
    let Some(huge) = hugetlb_page() else { return println!("skipped: no huge page to be had") };
    let mr = register(&provider, huge.page(7)).unwrap();
    assert!(provider.release_at_once(&mr) || !kernel_has_procmap_query());
    provider.deregister(mr).unwrap();
}

fn kernel_has_procmap_query() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(11))
}

/// Long ranges are pinned on another ring and handed over; nothing of that shows.
#[test]
fn long_ranges_are_like_short_ones() {
    in_own_process("long_ranges_are_like_short_ones", || {
        let pinned_before = status_kib("VmPin");
        let map = Map::filled(20_000, 1);
        let mut mover = Mover::new(1, PAGE_SIZE).unwrap();
        let provider = UringProvider::builder().slots(4).on(mover.ring()).unwrap();
        let mr = match register(&provider, map.range()) {
            Err(RegisterError::Limit { limit: Limit::Memlock, .. }) => {
                println!("skipped: RLIMIT_MEMLOCK is below 80 MB");
                return;
            }
            result => result.unwrap(),
        };
        let key = provider.key(&mr);
        for page in [0, 777, 19_999] {
            let addr = map.ptr().wrapping_add(page * PAGE_SIZE);
            assert_eq!(mover.write_fixed(key, addr, PAGE_SIZE).unwrap(), [1; PAGE_SIZE]);
            // SAFETY: nothing refers to the mapping.
            unsafe { mover.read_fixed(key, addr, &[page as u8; PAGE_SIZE]) }.unwrap();
            assert_eq!(mover.write_fixed(key, addr, PAGE_SIZE).unwrap(), [page as u8; PAGE_SIZE]);
        }
        assert_eq!(map.bytes()[19_999 * PAGE_SIZE], 19_999u32 as u8);
        assert!(status_kib("VmPin") >= pinned_before + 80_000);
        let held: Vec<_> = (0..3).map(|i| register(&provider, map.page(i)).unwrap()).collect();
        provider.deregister(mr).unwrap();
        let gone = mover.write_fixed(key, map.ptr(), PAGE_SIZE).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::EFAULT));
        // Handing over replaces the table; what else is in it stays.
        let again = register(&provider, map.range()).unwrap();
        for mr in &held {
            let addr = std::ptr::with_exposed_provenance(provider.key(mr).range().start());
            assert_eq!(mover.write_fixed(provider.key(mr), addr, 8).unwrap().len(), 8);
        }
        held.into_iter().chain([again]).for_each(|mr| provider.deregister(mr).unwrap());
        assert_eq!((provider.registered(), status_kib("VmPin")), (0, pinned_before));
    });
}

#[test]
fn an_owner_ring_is_recognised_and_kept_to_its_thread() {
    let mut builder = IoUring::<squeue::Entry, cqueue::Entry>::builder();
    let ring = match builder.setup_single_issuer().setup_defer_taskrun().build(4) {
        Ok(ring) => ring,
        Err(error) => return println!("skipped: no DEFER_TASKRUN rings (Linux 6.1): {error}"),
    };
    let map = Map::filled(2, 0);
    std::thread::scope(|s| {
        let elsewhere = s.spawn(|| UringProvider::new(&ring)).join().unwrap();
        assert!(matches!(elsewhere, Err(UringError::WrongThread)), "{elsewhere:?}");
    });
    let provider = UringProvider::new(&ring).unwrap();
    assert_eq!(provider.affinity(), Affinity::OwnerThread(std::thread::current().id()));
    let mr = register(&provider, map.range()).unwrap();
    let mr = std::thread::scope(|s| {
        let elsewhere = s.spawn(|| {
            assert!(matches!(register(&provider, map.page(0)), Err(RegisterError::WrongThread)));
            let failed = provider.deregister(mr).unwrap_err();
            assert_eq!(failed.source.raw_os_error(), Some(libc::EEXIST));
            failed.mr
        });
        elsewhere.join().unwrap()
    });
    assert_eq!(provider.registered(), 1);
    provider.deregister(mr).unwrap();
    assert_eq!(provider_with(4).affinity(), Affinity::AnyThread);
}

/// One byte at `addr` through slot `slot`, by a request of the application's own.
fn send_byte(ring: &mut IoUring, addr: *const u8, slot: u16) -> u8 {
    let file = std::fs::File::from(memfd(1));
    let write = opcode::WriteFixed::new(types::Fd(file.as_raw_fd()), addr, 1, slot).build();
    // SAFETY: the kernel reads pages that it holds pinned; the file outlives the request.
    unsafe { ring.submission().push(&write) }.unwrap();
    ring.submit_and_wait(1).unwrap();
    assert_eq!(ring.completion().next().unwrap().result(), 1);
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).unwrap();
    byte[0]
}

#[test]
fn the_applications_slots_are_left_alone() {
    let mine = Map::filled(1, b'm');
    let map = Map::filled(4, b'c');
    let mut ring = IoUring::new(4).unwrap();
    let provider = UringProvider::builder().slots(5).application_slots(2).on(&ring).unwrap();
    let iovec = libc::iovec { iov_base: mine.ptr().cast(), iov_len: mine.len() };
    // SAFETY: the mapping lives to the end of the test.
    unsafe { ring.submitter().register_buffers_update(1, &[iovec], None) }.unwrap();
    let mrs: Vec<_> = (0..3).map(|i| register(&provider, map.page(i)).unwrap()).collect();
    assert!(register(&provider, map.page(3)).is_err());
    assert_eq!(send_byte(&mut ring, mine.ptr(), 1), b'm');
    for mr in mrs {
        let key = provider.key(&mr);
        let addr = std::ptr::with_exposed_provenance(key.range().start());
        assert_eq!(send_byte(&mut ring, addr, key.buf_index()), b'c');
        provider.deregister(mr).unwrap();
    }
    drop(provider);
    let again = UringProvider::new(&ring);
    assert!(matches!(again, Err(UringError::TableExists(_))), "the application's buffer is still there");
    // SAFETY: slots 2..5 are free, and only this provider uses them.
    let provider = unsafe { UringProvider::builder().slots(5).application_slots(2).existing_table() };
    let provider = provider.on(&ring).unwrap();
    let mr = register(&provider, map.page(0)).unwrap();
    assert_eq!(send_byte(&mut ring, map.ptr(), provider.key(&mr).buf_index()), b'c');
    assert_eq!(send_byte(&mut ring, mine.ptr(), 1), b'm');
}

#[test]
fn unfit_tables_are_typed_errors() {
    let ring = IoUring::new(4).unwrap();
    let slots = |n| UringProvider::builder().slots(n).on(&ring).map(drop);
    assert!(matches!(slots(0), Err(UringError::Slots { .. })));
    assert!(matches!(slots(16385), Err(UringError::Slots { end: 16385, .. })));
    let all = UringProvider::builder().slots(4).application_slots(4).on(&ring);
    assert!(matches!(all, Err(UringError::Slots { first: 4, end: 4 })));
    // SAFETY: there is no table at all.
    let absent = unsafe { UringProvider::builder().slots(4).existing_table() }.on(&ring);
    assert!(matches!(absent, Err(UringError::Slots { .. })), "{absent:?}");
    assert!(slots(16384).is_ok());
    assert!(slots(8).is_ok(), "a provider that is gone leaves the ring as it was");
    let no_ring = UringProvider::new(std::io::stdin());
    assert!(matches!(no_ring, Err(UringError::Io { .. })), "{no_ring:?}");
}

#[test]
fn the_ring_outlives_the_application_s_handle() {
    let map = Map::filled(1, 0);
    let provider = provider_with(4); // its IoUring is gone already
    let mr = register(&provider, map.range()).unwrap();
    provider.deregister(mr).unwrap();
}

#[test]
fn release_tags_announce_released_buffers() {
    let map = Map::filled(2, 0);
    let mut ring = IoUring::new(4).unwrap();
    let provider = UringProvider::builder().slots(8).release_tags(0x7000_0000).on(&ring).unwrap();
    let mr = register(&provider, map.range()).unwrap();
    let slot = provider.key(&mr).buf_index();
    assert!(ring.completion().next().is_none());
    provider.deregister(mr).unwrap();
    ring.submit_and_wait(1).unwrap();
    let tag = ring.completion().next().unwrap().user_data();
    assert_eq!(provider.released_slot(tag), Some(slot));
    assert_eq!(provider.released_slot(0x7000_0008), None);
    assert_eq!(provider.released_slot(3), None);
    let silent = UringProvider::builder().on(IoUring::new(4).unwrap()).unwrap();
    assert_eq!(silent.released_slot(0), None);
}

#[test]
fn a_forked_child_leaves_the_parents_buffers_alone() {
    in_own_process("a_forked_child_leaves_the_parents_buffers_alone", || {
        let map = Map::filled(2, b'p');
        let mut mover = Mover::new(1, map.len()).unwrap();
        let provider = UringProvider::new(mover.ring()).unwrap();
        let mr = register(&provider, map.range()).unwrap();
        let key = provider.key(&mr);
        // SAFETY: the child makes a few system calls, builds a ring of its own, and exits without unwinding.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = matches!(register(&provider, map.page(0)), Err(RegisterError::Unsupported { .. }));
            let quiet = provider.deregister(mr).is_ok();
            drop(provider);
            let own = provider_with(4);
            let works = register(&own, map.page(0)).is_ok_and(|mr| own.deregister(mr).is_ok());
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if refused && quiet && works { 0 } else { 1 }) }
        }
        let mut status = 0;
        // SAFETY: waits for our child; the pointer is to a live int.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
        assert_eq!(mover.write_fixed(key, map.ptr(), map.len()).unwrap(), map.bytes());
        provider.deregister(mr).unwrap();
    });
}

#[test]
fn threads_register_at_once_and_nothing_is_left() {
    in_own_process("threads_register_at_once_and_nothing_is_left", || {
        let pinned_before = status_kib("VmPin");
        let provider = provider_with(32);
        std::thread::scope(|s| {
            for _ in 0..4 {
                let provider = &provider;
                s.spawn(move || {
                    let map = Map::filled(16, 0);
                    for round in 0..5_000 {
                        let mr = register(provider, map.page(round % 16)).unwrap();
                        assert_eq!(provider.key(&mr).range(), map.page(round % 16));
                        provider.deregister(mr).unwrap();
                    }
                });
            }
        });
        assert_eq!((provider.registered(), status_kib("VmPin")), (0, pinned_before));
    });
}
