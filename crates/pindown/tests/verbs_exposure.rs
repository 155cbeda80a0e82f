//! What a peer can reach, and until when (docs/remote-access.md).
#![cfg(feature = "verbs")]

mod verbs_common;

use std::time::Duration;

use pindown::provider::verbs::rc::{Endpoint, EndpointOptions, Grant, RcError, Remote, Request, Segment};
use pindown::provider::verbs::{Key, OpenError, Options, Verbs};
use pindown::{Access, Builder, Cache, MonitorChoice};
use verbs_common::{Memory, cache};

const LEN: usize = 16 << 10;
const TIMEOUT: Duration = Duration::from_secs(10);

/// A peer: a device (`PINDOWN_VERBS_PEER`, another host's if there is one; else the same), domain and
/// endpoint of its own, with bytes to write.
struct Peer {
    near: Endpoint,
    far: Endpoint,
    own: Cache<Verbs>,
    bytes: Memory,
}

impl Peer {
    fn new(cache: &Cache<Verbs>) -> Self {
        let device = std::env::var("PINDOWN_VERBS_PEER").unwrap_or_else(|_| cache.provider().device());
        let own = verbs_common::cache(&device, Options::default());
        let options = EndpointOptions::default();
        let near = Endpoint::new(own.provider(), &options).unwrap();
        let far = Endpoint::new(cache.provider(), &options).unwrap();
        near.connect(&far.address()).unwrap();
        far.connect(&near.address()).unwrap();
        let bytes = Memory::new(LEN);
        bytes.fill(42);
        Self { near, far, own, bytes }
    }

    /// Writes `len` of its bytes at `addr` with `rkey`.
    fn write(&self, addr: u64, len: u32, rkey: u32) -> Result<u32, RcError> {
        // SAFETY: only the device reads it.
        let own = unsafe { self.own.acquire(self.bytes.addr, LEN, Access::READ) }.unwrap();
        let segment = Segment { addr: self.bytes.addr.addr(), len_bytes: len, lkey: own.key().lkey };
        // SAFETY: the hold is passed on; the target is a test's memory that nothing refers to.
        unsafe { self.near.transfer(Request::Write(Remote { addr, rkey }), segment, own, TIMEOUT) }
    }
}

fn revoking(device: &str) -> Cache<Verbs> {
    let provider = Verbs::open(device, Options::default()).unwrap();
    Builder::new(provider).monitor(MonitorChoice::Manual).revoke_on_put().build().unwrap()
}

fn given(cache: &Cache<Verbs>, target: &Memory) -> pindown::Registration<Verbs> {
    // SAFETY: nothing refers to the target's bytes while peers write.
    unsafe { cache.acquire(target.addr, target.len, Access::REMOTE_WRITE) }.unwrap()
}

#[test]
fn revoke_on_put_ends_the_rkey_with_the_hold() {
    let device = device_or_skip!();
    let cache = revoking(&device);
    let (target, peer) = (Memory::new(LEN), Peer::new(&cache));
    let held = given(&cache, &target);
    let Key { rkey, .. } = held.key();
    assert!(!held.is_cached());
    peer.write(target.addr.addr() as u64, LEN as u32, rkey).expect("while it is held");
    assert_eq!(target.bytes(), peer.bytes.bytes());
    drop(held);
    target.fill(0);
    let kept = target.bytes();
    let refused = peer.write(target.addr.addr() as u64, LEN as u32, rkey).unwrap_err();
    eprintln!("after the put: {refused}");
    assert!(matches!(refused, RcError::Work { .. }), "{refused:?}");
    assert_eq!(target.bytes(), kept);
}

#[test]
fn cached_as_peers_do_it_the_rkey_outlives_the_put() {
    let device = device_or_skip!();
    let cache = cache(&device, Options::default());
    let (target, peer) = (Memory::new(LEN), Peer::new(&cache));
    let rkey = given(&cache, &target).key().rkey;
    peer.write(target.addr.addr() as u64, LEN as u32, rkey).expect("cached: still registered");
    assert!(cache.flush(pindown::PageRange::covering(target.addr.addr(), LEN).unwrap()).is_ok());
    assert!(peer.write(target.addr.addr() as u64, LEN as u32, rkey).is_err(), "flushed");
}

#[test]
fn remote_regions_are_never_wider_than_the_pages_asked_for() {
    let device = device_or_skip!();
    let cache = cache(&device, Options::default());
    let memory = Memory::new(16 * LEN);
    for window in 0..16 {
        let addr = memory.addr.wrapping_add(window * LEN);
        // SAFETY: nothing is transferred.
        let held = unsafe { cache.acquire(addr, LEN, Access::REMOTE_READ) }.unwrap();
        assert_eq!((held.range().start(), held.range().len_bytes()), (addr.addr(), LEN));
    }
}

/// Soft-RoCE's check_rkey (drivers/infiniband/sw/rxe/rxe_resp.c) compares a window's request with
/// the region's range, not the window's. It has a `parent` network device in sysfs.
fn is_soft_roce(device: &str) -> bool {
    std::path::Path::new("/sys/class/infiniband").join(device).join("parent").exists()
}

#[test]
fn a_window_gives_exact_bytes_and_is_taken_back_while_the_region_stays() {
    let device = device_or_skip!();
    let provider = match Verbs::open(&device, Options::default().memory_windows()) {
        Err(why @ OpenError::NoMemoryWindows { .. }) => return eprintln!("skipped: {why}"),
        other => other.unwrap(),
    };
    drop(provider);
    let cache = cache(&device, Options::default().memory_windows());
    let (target, owner) = (Memory::new(LEN), Peer::new(&cache));
    // SAFETY: nothing refers to the target's bytes while peers write.
    let held = unsafe { cache.acquire(target.addr, LEN, Access::READ_WRITE) }.unwrap();
    let (at, len) = (target.addr.addr() + 100, 1000);
    let open = |peer: &Peer| {
        let provider = cache.provider();
        // A type 1 window is bound on a queue of the owner; any queue of the domain may use it.
        // SAFETY: as above.
        unsafe {
            Grant::open(
                &peer.far,
                provider,
                held.key(),
                (at, len),
                Access::REMOTE_WRITE,
                held.clone(),
                TIMEOUT,
            )
        }
    };
    let grant = open(&owner).expect("a window");
    let rkey = grant.rkey();
    assert_ne!(rkey, held.key().rkey);
    let write = |addr: usize, len: usize, rkey| Peer::new(&cache).write(addr as u64, len as u32, rkey);
    write(at, len, rkey).expect("inside the window");
    if is_soft_roce(&device) {
        eprintln!("soft-RoCE checks a window's rights but not its bounds: not tested");
    } else {
        assert!(write(at - 1, 2, rkey).is_err(), "a byte before it");
        assert!(write(at + len - 1, 2, rkey).is_err(), "a byte after it");
    }
    assert!(write(target.addr.addr() + LEN - 1, 2, rkey).is_err(), "a byte after the region");
    grant.revoke().expect("taken back");
    target.fill(7);
    let kept = target.bytes();
    assert!(write(at, len, rkey).is_err(), "after it was taken back");
    assert_eq!(target.bytes(), kept);
    assert!(held.is_cached() && !held.is_stale());
    assert!(cache.lookup(target.addr, LEN, Access::READ_WRITE).is_some(), "the region stays");
}
