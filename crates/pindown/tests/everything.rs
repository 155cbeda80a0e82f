//! "Register everything": a fake device with a key of all memory, one without, and the kernel's rings.

mod support;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use pindown::everything::EverythingError;
use pindown::provider::sim::{Sim, SimConfig, SimKey, SimMr};
use pindown::{
    Access, Builder, Cache, DeregisterFailed, EventKind, MappingKind, MonitorChoice, PAGE_SIZE, PageRange,
    Provider, ProviderCaps, RegisterError,
};
use support::Map;

const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

fn cache<P: Provider>(provider: P) -> Cache<P> {
    Builder::new(provider).monitor(MonitorChoice::Manual).build().unwrap()
}

fn sim(max_region_bytes: u64, max_segments: usize) -> Sim {
    let mut config = SimConfig::default();
    config.caps.max_region_bytes = max_region_bytes;
    config.caps.max_segments = max_segments;
    Sim::with(config)
}

/// A device with implicit on-demand paging: one key of all memory, for local rights.
#[derive(Debug)]
struct Implicit {
    sim: Sim,
    asked: AtomicUsize,
}

// SAFETY: it registers as the simulated one does, which has no device.
unsafe impl Provider for Implicit {
    type Mr = SimMr;
    type Key = SimKey;
    fn name(&self) -> &'static str {
        "implicit"
    }
    fn caps(&self) -> ProviderCaps {
        let mut caps = self.sim.caps();
        caps.coherent = true;
        caps
    }
    fn key(&self, mr: &SimMr) -> SimKey {
        self.sim.key(mr)
    }
    unsafe fn register(&self, range: PageRange, access: Access) -> Result<SimMr, RegisterError> {
        // SAFETY: the caller's promise.
        unsafe { self.sim.register(range, access) }
    }
    fn deregister(&self, mr: SimMr) -> Result<(), DeregisterFailed<SimMr>> {
        self.sim.deregister(mr)
    }
    fn prefetch(&self, key: SimKey, range: PageRange, _: Access) -> io::Result<()> {
        if key.range.contains(range) { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
    fn everything_key(&self, access: Access) -> Option<SimKey> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        (!access.is_remote()).then(|| SimKey { id: u64::MAX, range: PageRange::everything() })
    }
}

#[test]
fn an_implicit_key_serves_all_memory_and_is_asked_for_once_on_first_use() {
    let sim = Sim::new();
    let cache = cache(Implicit { sim: sim.clone(), asked: AtomicUsize::new(0) });
    let memory = cache.everything(Access::READ_WRITE);
    assert_eq!(cache.provider().asked.load(Ordering::SeqCst), 0, "costs nothing until used");
    for addr in [0x1000usize, 0x7000_0000_1234] {
        // SAFETY: the simulated device touches no memory.
        let segments = unsafe { memory.keys(std::ptr::without_provenance(addr), 3 << 30) }.unwrap();
        let segment = &segments.as_slice()[0];
        assert_eq!((segments.count(), segment.key().id, segment.len_bytes()), (1, u64::MAX, 3 << 30));
        assert_eq!(segment.addr().addr(), addr);
        assert!(segment.registration().is_none() && !segments.is_stale());
    }
    assert_eq!((cache.provider().asked.load(Ordering::SeqCst), sim.books().registered), (1, 0));
    // Peers cannot be given all memory: registered as anywhere else.
    let map = Map::filled(2, 1);
    let remote = cache.everything(Access::REMOTE_READ);
    // SAFETY: as above.
    let segments = unsafe { remote.keys(map.ptr(), map.len()) }.unwrap();
    assert_eq!((segments.as_slice()[0].key().range, sim.books().registered), (map.range(), 1));
}

#[test]
fn a_device_that_faults_by_itself_is_asked_to_ready_what_is_registered() {
    let cache = cache(Implicit { sim: Sim::new(), asked: AtomicUsize::new(0) });
    let queue = pindown::queue::Queue::new(&cache).unwrap();
    let map = Map::filled(4, 1);
    // SAFETY: as above.
    unsafe { queue.prefetch_then(map.ptr(), map.len(), Access::READ, 1, |_| {}) }.unwrap();
    let completion = queue.wait(std::time::Duration::from_secs(20)).unwrap();
    let Ok(pindown::queue::Done::Prefetched(ready, Some(_))) = completion.result else {
        panic!("{completion:?}")
    };
    assert!(matches!(ready.device, Some(Ok(()))), "{ready:?}");
}

#[test]
fn requests_are_split_by_the_longest_registration_and_bounded() {
    let sim = sim(4 * PAGE_SIZE as u64, 3);
    let cache = cache(sim.clone());
    let memory = cache.everything(Access::READ_WRITE);
    let map = Map::filled(64, 1);
    let addr = map.ptr().wrapping_add(100);
    // SAFETY: as above.
    let segments = unsafe { memory.keys(addr, 10 * PAGE_SIZE) }.unwrap();
    assert_eq!((segments.count(), segments.len_bytes()), (3, 10 * PAGE_SIZE));
    // SAFETY: as above.
    let error = unsafe { memory.keys(addr, 13 * PAGE_SIZE) }.unwrap_err();
    let EverythingError::TooManySegments { limit: 3, covered_bytes } = error else { panic!("{error:?}") };
    // SAFETY: as above.
    assert_eq!(unsafe { memory.keys(addr, covered_bytes) }.unwrap().count(), 3);
    // Again: from what is registered.
    let (before, stats) = (sim.books().registered, cache.stats());
    assert_eq!(
        (stats.misses, stats.uncached),
        (stats.registrations + stats.register_failures, 0),
        "counted once"
    );
    // SAFETY: as above.
    drop(unsafe { memory.keys(addr, 10 * PAGE_SIZE) }.unwrap());
    assert_eq!(sim.books().registered, before);
}

#[test]
fn a_change_is_followed() {
    let sim = Sim::new();
    let cache = cache(sim.clone());
    let memory = cache.everything(Access::READ_WRITE);
    let map = Map::filled(8, 1);
    // SAFETY: as above.
    let old = unsafe { memory.keys(map.ptr(), map.len()) }.unwrap();
    sim.remap(map.range());
    cache.notifier().invalidate(map.page(3), EventKind::Unmap);
    // SAFETY: as above.
    let new = unsafe { memory.keys(map.ptr(), map.len()) }.unwrap();
    assert!(old.is_stale() && !new.is_stale());
    let key = new.as_slice()[0].key();
    assert_eq!(sim.stale_pages(key, map.range()).unwrap(), 0);
}

#[test]
fn a_hole_is_named_with_how_far_the_request_is_good() {
    support::in_own_process("a_hole_is_named_with_how_far_the_request_is_good", || {
        let cache = cache(Sim::new());
        let memory = cache.everything(Access::READ);
        let map = Map::filled(140, 1);
        // A thread that still starts maps a few pages: at the hole's upper end.
        // SAFETY: the test's own pages.
        unsafe { libc::munmap(map.ptr().wrapping_add(5 * PAGE_SIZE).cast(), 135 * PAGE_SIZE) };
        // SAFETY: as above.
        let error = unsafe { memory.keys(map.ptr().wrapping_add(1), 6 * PAGE_SIZE) }.unwrap_err();
        let EverythingError::Hole { at, offset_bytes } = error else { panic!("{error:?}") };
        assert_eq!((at, offset_bytes), (map.range().start() + 5 * PAGE_SIZE, 5 * PAGE_SIZE - 1));
    });
}

/// Anonymous memory, a memfd and a third kind side by side, with real transfers of every byte.
#[cfg(feature = "io-uring")]
#[test]
fn a_request_over_mappings_of_different_kinds_works_or_names_the_bad_one() {
    use pindown::provider::io_uring::{Mover, UringProvider};
    use std::os::fd::{AsRawFd, FromRawFd};
    let map = Map::filled(12, b'a');
    // SAFETY: a C string; the descriptor is new.
    let file = unsafe { std::fs::File::from_raw_fd(libc::memfd_create(c"everything".as_ptr(), 0)) };
    file.set_len(4 * PAGE_SIZE as u64).unwrap();
    let over = |page: usize, pages, flags, fd| {
        let at = map.range().start() + page * PAGE_SIZE;
        std::mem::forget(Map::new(Some(at), pages, RW, flags, fd).unwrap());
    };
    over(4, 4, libc::MAP_SHARED, file.as_raw_fd());
    over(8, 4, libc::MAP_SHARED, -1);
    let mut mover = Mover::new(1, map.len()).unwrap();
    let cache = cache(UringProvider::new(mover.ring()).unwrap());
    let memory = cache.everything(Access::READ_WRITE);
    let bytes: Vec<u8> = (0..map.len()).map(|i| (i * 7 % 251) as u8).collect();
    // SAFETY: the test's mapping, to which nothing refers.
    unsafe { map.ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    // SAFETY: as above.
    let segments = unsafe { memory.keys(map.ptr().wrapping_add(9), map.len() - 20) }.unwrap();
    assert_eq!(segments.count(), 3);
    let mut sent: Vec<u8> = Vec::new();
    for segment in &segments {
        sent.extend_from_slice(
            mover.write_fixed(segment.key(), segment.addr(), segment.len_bytes()).unwrap(),
        );
    }
    assert_eq!(sent, bytes[9..bytes.len() - 11]);
    drop(segments);
    // What cannot be registered is named.
    map.hole(5);
    cache.invalidate(map.range());
    // SAFETY: as above.
    let error = unsafe { memory.keys(map.ptr(), map.len()) }.unwrap_err();
    let EverythingError::NotRegistrable { mapping, kind, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*mapping, *kind), (map.page(5), MappingKind::Anonymous));
    assert!(error.to_string().contains("cannot be registered"), "{error}");
}
