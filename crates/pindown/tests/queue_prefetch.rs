//! Prefetch against the kernel: how far it gets on memory of every kind, and that it never faults.

mod support;

use std::os::fd::{AsRawFd, FromRawFd};
use std::time::Duration;

use pindown::provider::sim::Sim;
use pindown::queue::{Done, Prefetched, Queue, Stop, prefetch};
use pindown::{Access, Builder, MonitorChoice, PAGE_SIZE, PageRange};
use support::{Map, in_own_process};

const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

fn queue() -> Queue<Sim> {
    Queue::new(&Builder::new(Sim::new()).monitor(MonitorChoice::Manual).build().unwrap()).unwrap()
}

/// Through the queue.
fn prefetched(range: PageRange, access: Access) -> Prefetched {
    prefetched_on(&queue(), range, access)
}

fn prefetched_on(queue: &Queue<Sim>, range: PageRange, access: Access) -> Prefetched {
    let addr = std::ptr::with_exposed_provenance(range.start());
    queue.prefetch(addr, range.len_bytes(), access, 9).unwrap();
    let completion = queue.wait(Duration::from_secs(30)).unwrap();
    assert_eq!(completion.user_data, 9);
    match completion.result {
        Ok(Done::Prefetched(ready, None)) => ready,
        other => panic!("{other:?}"),
    }
}

/// Which pages are in memory (`mincore(2)`).
fn resident(range: PageRange) -> usize {
    let mut pages = vec![0u8; range.pages() as usize];
    let at = std::ptr::without_provenance_mut(range.start());
    // SAFETY: the vector has a byte a page.
    assert_eq!(unsafe { libc::mincore(at, range.len_bytes(), pages.as_mut_ptr()) }, 0);
    pages.iter().filter(|p| **p & 1 == 1).count()
}

fn memfd(pages: usize) -> std::fs::File {
    // SAFETY: a C string; the descriptor is new.
    let file =
        unsafe { std::fs::File::from_raw_fd(libc::memfd_create(c"prefetch".as_ptr(), libc::MFD_CLOEXEC)) };
    file.set_len((pages * PAGE_SIZE) as u64).unwrap();
    file
}

fn assert_stops(ready: &Prefetched, pages: usize, expected: impl Fn(&Stop) -> bool) {
    assert_eq!(ready.ready_bytes, pages * PAGE_SIZE, "{ready:?}");
    assert!(ready.stop.as_ref().is_some_and(expected), "{ready:?}");
}

#[test]
fn cold_memory_gets_ready() {
    let map = Map::new(None, 64, RW, libc::MAP_PRIVATE, -1).unwrap();
    assert_eq!(resident(map.range()), 0);
    let ready = prefetched(map.range(), Access::READ_WRITE);
    assert!(ready.stop.is_none() && ready.ready_bytes == map.len(), "{ready:?}");
    assert_eq!(resident(map.range()), 64);
    assert!(map.bytes().iter().all(|b| *b == 0));
}

#[test]
fn a_hole_is_named() {
    in_own_process("a_hole_is_named", || {
        let (queue, map) = (queue(), Map::filled(140, 1));
        prefetched_on(&queue, map.range(), Access::READ); // whatever its threads map, they have mapped
        // A thread that still starts maps a few pages: at the hole's upper end.
        // SAFETY: the test's own pages.
        unsafe { libc::munmap(map.ptr().wrapping_add(23 * PAGE_SIZE).cast(), 117 * PAGE_SIZE) };
        let hole = map.range().start() + 23 * PAGE_SIZE;
        assert_stops(
            &prefetched(map.range(), Access::READ),
            23,
            |s| matches!(s, Stop::Hole { at } if *at == hole),
        );
        // Unmapping all of it would take away what a thread has mapped in the hole meanwhile.
        std::mem::forget(map);
    });
}

#[test]
fn inaccessible_and_read_only_memory_is_named() {
    let map = Map::filled(16, 1);
    map.hole(5);
    let at = map.range().start() + 5 * PAGE_SIZE;
    let forbidden = |s: &Stop| matches!(s, Stop::Forbidden { at: a } if *a == at);
    assert_stops(&prefetched(map.range(), Access::READ), 5, forbidden);
    let read_only = Map::new(None, 4, libc::PROT_READ, libc::MAP_PRIVATE, -1).unwrap();
    assert!(prefetched(read_only.range(), Access::READ).stop.is_none());
    let ready = prefetched(read_only.range(), Access::READ_WRITE);
    assert_stops(&ready, 0, |s| matches!(s, Stop::Forbidden { .. }));
}

#[test]
fn beyond_a_files_end_there_is_no_sigbus() {
    for flags in [libc::MAP_SHARED, libc::MAP_PRIVATE] {
        let file = memfd(8);
        let map = Map::new(None, 8, RW, flags, file.as_raw_fd()).unwrap();
        file.set_len((3 * PAGE_SIZE) as u64).unwrap();
        let end = map.range().start() + 3 * PAGE_SIZE;
        for access in [Access::READ, Access::READ_WRITE] {
            let ready = prefetched(map.range(), access);
            assert_stops(&ready, 3, |s| matches!(s, Stop::BeyondFile { at } if *at == end));
        }
        // Some of its first page is the file's.
        let ready = prefetched(map.page(3), Access::READ);
        assert_stops(&ready, 0, |s| matches!(s, Stop::BeyondFile { .. }));
    }
}

#[test]
fn huge_pages_get_ready_or_are_typed_errors() {
    const HUGE: usize = 2 << 20;
    let map = match Map::new(None, 2 * HUGE / PAGE_SIZE, RW, libc::MAP_PRIVATE | libc::MAP_HUGETLB, -1) {
        Ok(map) => map,
        Err(error) => return println!("skipped: no huge pages (vm.nr_hugepages): {error}"),
    };
    let ready = prefetched(map.range(), Access::READ_WRITE);
    assert!(ready.stop.is_none() && ready.ready_bytes == 2 * HUGE, "{ready:?}");
    assert_eq!(resident(map.range()), 2 * HUGE / PAGE_SIZE);
}

/// A pool that is mapped without a reservation runs out: SIGBUS for who touches it, an error here.
#[test]
fn an_empty_pool_of_huge_pages_is_no_sigbus() {
    let flags = libc::MAP_PRIVATE | libc::MAP_HUGETLB | libc::MAP_NORESERVE;
    let Ok(map) = Map::new(None, (1 << 30) / PAGE_SIZE, RW, flags, -1) else {
        return println!("skipped: this kernel maps no huge pages");
    };
    let ready = prefetch(map.range(), Access::READ_WRITE);
    match ready.stop {
        None => println!("skipped: this machine has a pool of more than 1 GiB"),
        Some(stop) => {
            assert!(ready.ready_bytes.is_multiple_of(2 << 20), "{stop:?}");
            // A cgroup's limit is met as ENOMEM, which nothing tells from a hole.
            assert!(matches!(stop, Stop::NoHugePage { .. } | Stop::Hole { .. }), "{stop:?}");
        }
    }
}

/// After fork a page is shared until one side writes. Made ready for writing, it is the writer's own:
/// what a device then writes through a registration is not in the other's view.
#[cfg(feature = "io-uring")]
#[test]
fn after_fork_writing_breaks_the_sharing() {
    in_own_process("after_fork_writing_breaks_the_sharing", || {
        let map = Map::filled(8, b'o');
        // SAFETY: the child only does what async-signal-safety allows besides this test's own calls.
        match unsafe { libc::fork() } {
            0 => {
                let fine = std::panic::catch_unwind(|| child_waits_and_looks(&map)).is_ok();
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(!fine)) }
            }
            child => {
                device_writes(&map, b'p');
                assert!(map.bytes().iter().all(|b| *b == b'p'), "the parent sees what its device wrote");
                let mut status = 0;
                // SAFETY: a live int.
                unsafe { libc::waitpid(child, &mut status, 0) };
                assert_eq!(status, 0, "the child saw other bytes than its own");
            }
        }
    });
}

/// The child's own device writes its own pages.
#[cfg(feature = "io-uring")]
fn child_waits_and_looks(map: &Map) {
    std::thread::sleep(Duration::from_millis(300)); // the parent's transfer is over
    assert!(map.bytes().iter().all(|b| *b == b'o'), "the parent's device wrote into the child");
    device_writes(map, b'c');
    assert!(map.bytes().iter().all(|b| *b == b'c'));
}

/// Prefetch for write, register, then READ_FIXED into it, as one submission and its completion.
#[cfg(feature = "io-uring")]
fn device_writes(map: &Map, byte: u8) {
    use pindown::provider::io_uring::{Mover, UringProvider};
    let mut mover = Mover::new(1, map.len()).unwrap();
    let provider = UringProvider::new(mover.ring()).unwrap();
    let cache = Builder::new(provider).monitor(MonitorChoice::Manual).build().unwrap();
    let queue = Queue::new(&cache).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let then = move |held: &pindown::Registration<_>| tell.send(held.key()).unwrap();
    // SAFETY: nothing refers to the mapping while the device writes.
    unsafe { queue.prefetch_then(map.ptr(), map.len(), Access::READ_WRITE, 1, then) }.unwrap();
    let key = told.recv_timeout(Duration::from_secs(30)).unwrap();
    // SAFETY: as above.
    unsafe { mover.read_fixed(key, map.ptr(), &vec![byte; map.len()]) }.unwrap();
    let Done::Prefetched(ready, Some(_)) = queue.wait(Duration::from_secs(30)).unwrap().result.unwrap()
    else {
        panic!("not registered")
    };
    assert!(ready.stop.is_none() && ready.device.is_none());
}

#[test]
fn a_transfer_is_not_posted_when_pages_are_missing() {
    let map = Map::filled(4, 1);
    map.hole(2);
    let queue = queue();
    let then = |_: &pindown::Registration<Sim>| panic!("called");
    // SAFETY: the simulated device touches no memory.
    unsafe { queue.prefetch_then(map.ptr(), map.len(), Access::READ, 1, then) }.unwrap();
    let completion = queue.wait(Duration::from_secs(30)).unwrap();
    let Ok(Done::Prefetched(ready, None)) = completion.result else { panic!("{completion:?}") };
    assert_eq!(ready.ready_bytes, 2 * PAGE_SIZE);
}
