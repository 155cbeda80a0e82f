//! Each backend that starts here.

use std::os::fd::AsFd;
use std::sync::Arc;

use pindown_core::{Monitor, PageRange};

use super::{Event, Extent, Watch, WatchError};
use crate::sys::scratch::Scratch;

fn backends() -> Vec<Watch> {
    let mut monitors: Vec<Arc<dyn Monitor>> = Vec::new();
    #[cfg(feature = "ebpf")]
    if let Ok(monitor) = crate::monitor::ebpf::EbpfMonitor::open(&Default::default()) {
        monitors.push(Arc::new(monitor));
    }
    #[cfg(feature = "uffd")]
    monitors.push(Arc::new(crate::monitor::Uffd::new()));
    monitors.into_iter().filter_map(|m| Watch::with(m).map_err(|e| println!("skipped: {e}")).ok()).collect()
}

impl Watch {
    /// Other tests discard memory at what may be this address: uffd then wants a grace period.
    fn register_soon(&self, range: PageRange, cookie: u64) {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while let Err(e) = self.register(range, cookie) {
            assert!(std::time::Instant::now() < until, "{e}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// The batch, without its end, which must be the present generation.
fn batch(watch: &Watch) -> Vec<(u64, Extent)> {
    let mut events = Vec::new();
    let generation = watch.read(&mut events);
    assert_eq!(events.pop(), Some(Event::End { generation }));
    let changed = |e| match e {
        Event::Changed { cookie, extent } => (cookie, extent),
        other => panic!("{other:?} inside a batch"),
    };
    events.into_iter().map(changed).collect()
}

fn is_readable(watch: &Watch, millis: i32) -> bool {
    let mut poll = libc::pollfd {
        fd: std::os::fd::AsRawFd::as_raw_fd(&watch.as_fd()),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one live pollfd.
    unsafe { libc::poll(&raw mut poll, 1, millis) == 1 }
}

#[test]
fn a_change_moves_the_word_and_is_reported_exactly_once() {
    for watch in backends() {
        let memory = Scratch::new(32).unwrap();
        watch.register_soon(memory.pages(0, 16), 1);
        watch.register_soon(memory.pages(8, 16), 2);
        let seen = {
            batch(&watch);
            watch.generation()
        };
        memory.discard(memory.pages(9, 2)).unwrap();
        assert_ne!(watch.generation(), seen, "{}", watch.monitor().name());
        assert!(is_readable(&watch, 2000), "{}", watch.monitor().name());
        let exact = Extent::Exact(memory.pages(9, 2));
        assert_eq!(batch(&watch), [(1, exact), (2, exact)]);
        assert_eq!(batch(&watch), []);
        memory.discard(memory.pages(1, 1)).unwrap();
        memory.discard(memory.pages(5, 1)).unwrap();
        assert_eq!(batch(&watch), [(1, Extent::Whole)]);
        watch.unregister(1).unwrap();
        memory.discard(memory.pages(2, 1)).unwrap();
        assert!(batch(&watch).iter().all(|(cookie, _)| *cookie != 1));
    }
}

#[test]
fn unmapping_all_of_a_region_is_the_whole_of_it() {
    for watch in backends() {
        let memory = Scratch::new(8).unwrap();
        watch.register_soon(memory.all(), 9);
        batch(&watch);
        drop(memory);
        assert_eq!(batch(&watch), [(9, Extent::Whole)], "{}", watch.monitor().name());
        watch.unregister(9).unwrap();
    }
}

#[test]
fn misuse_is_a_typed_error() {
    for watch in backends() {
        let memory = Scratch::new(1).unwrap();
        watch.register_soon(memory.all(), 1);
        assert!(matches!(watch.register(memory.all(), 1), Err(WatchError::CookieInUse(1))));
        assert!(matches!(watch.unregister(2), Err(WatchError::NoSuchCookie(2))));
    }
}

/// Refused, and then the cookie is free; or watched, and then what comes and goes there is reported.
#[test]
fn a_range_without_a_mapping_is_refused_or_watched() {
    for watch in backends() {
        let memory = Scratch::new(64).unwrap();
        let range = memory.all();
        watch.register_soon(range, 1);
        drop(memory);
        watch.unregister(1).unwrap();
        let Ok(()) = watch.register(range, 1) else {
            let other = Scratch::new(1).unwrap();
            watch.register_soon(other.all(), 1);
            continue;
        };
        batch(&watch);
        // The kernel gives the addresses of the last unmapping, unless another test was faster.
        let again = Scratch::new(64).unwrap();
        if again.all() != range {
            println!("skipped: another test has got the addresses");
            continue;
        }
        again.discard(again.pages(0, 1)).unwrap();
        assert!(batch(&watch).iter().any(|(cookie, _)| *cookie == 1), "{}", watch.monitor().name());
    }
}

#[cfg(feature = "ebpf")]
#[test]
fn an_overflow_reports_every_region() {
    use crate::monitor::ebpf::{EbpfMonitor, EbpfOptions};
    let options = EbpfOptions { ring_bytes: Some(4096), ..Default::default() };
    let Ok(monitor) = EbpfMonitor::open(&options).map_err(|e| println!("skipped: {e}")) else { return };
    let watch = Watch::with(Arc::new(monitor)).unwrap();
    let memory = Scratch::new(4).unwrap();
    watch.register(memory.pages(0, 1), 1).unwrap();
    watch.register(memory.pages(2, 1), 2).unwrap();
    batch(&watch);
    (0..500).for_each(|_| memory.discard(memory.pages(0, 1)).unwrap());
    assert_eq!(batch(&watch), [(1, Extent::Whole), (2, Extent::Whole)]);
}

/// What the child says by its exit status: 0 is right.
fn in_forked_child(watch: &Watch, memory: &Scratch, seen: u64) -> i32 {
    // SAFETY: the child runs only what the test asks for and ends without the parent's destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let moved = watch.generation() != seen;
        let mut events = Vec::with_capacity(8);
        let end = watch.read(&mut events);
        let all = events.iter().filter(|e| matches!(e, Event::Changed { extent: Extent::Whole, .. })).count();
        let never_current = watch.generation() != end;
        let refused = watch.register(memory.pages(0, 1), 99).is_err();
        let wrong = [moved, all == 2, never_current, refused].iter().position(|right| !right);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(wrong.map_or(0, |i| i as i32 + 1)) };
    }
    let mut status = 0;
    // SAFETY: reaps the child just made.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    libc::WEXITSTATUS(status)
}

#[test]
fn a_forked_child_finds_everything_changed_and_its_parent_nothing() {
    for watch in backends() {
        let memory = Scratch::new(8).unwrap();
        watch.register_soon(memory.pages(0, 1), 1);
        watch.register_soon(memory.pages(4, 1), 2);
        batch(&watch);
        let seen = watch.generation();
        assert_eq!(in_forked_child(&watch, &memory, seen), 0, "{}", watch.monitor().name());
        memory.discard(memory.pages(4, 1)).unwrap();
        assert_eq!(batch(&watch), [(2, Extent::Whole)], "the parent's goes on as before");
    }
}
