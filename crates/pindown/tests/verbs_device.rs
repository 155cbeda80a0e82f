//! Real bytes through a real device (soft-RoCE in the lab; any other will do).
#![cfg(feature = "verbs")]

mod verbs_common;

use std::sync::Arc;
use std::time::Duration;

use pindown::monitor::NoMonitor;
use pindown::provider::verbs::rc::{Endpoint, EndpointOptions, Mover, Remote, Request, Segment};
use pindown::provider::verbs::{ForkState, OpenError, Options, Paging, Verbs, pieces};
use pindown::{
    Access, AcquireError, Builder, Cache, FlushError, PageRange, Provider, RegisterError, Registration,
};
use verbs_common::{Memory, cache, cache_with, has_on_demand};

const LEN: usize = 64 << 10;

fn mover(cache: &Cache<Verbs>) -> Mover {
    Mover::new(cache.provider(), &EndpointOptions::default(), 4, LEN).expect("a loopback connection")
}

fn acquire(cache: &Cache<Verbs>, memory: &Memory) -> Registration<Verbs> {
    // SAFETY: only a Mover's transfers, which are waited for, write the memory.
    unsafe { cache.acquire(memory.addr, memory.len, Access::READ_WRITE) }.expect("registers")
}

/// Whether WRITE, SEND and READ through `held` move what the CPU sees.
fn is_right(mover: &mut Mover, held: &Registration<Verbs>, memory: &Memory) -> bool {
    let key = held.key();
    let out = mover.write(key, memory.addr, memory.len).expect("WRITE") == memory.bytes();
    let sent = mover.send(key, memory.addr, memory.len).expect("SEND") == memory.bytes();
    let news: Vec<u8> = memory.bytes().iter().map(|b| !b).collect();
    // SAFETY: nothing refers to the memory, and it is held.
    unsafe { mover.read(key, memory.addr, &news) }.expect("READ");
    out && sent && memory.bytes() == news
}

#[test]
fn cached_regions_move_the_right_bytes() {
    let device = device_or_skip!();
    let cache = cache(&device, Options::default());
    let (memory, mut mover) = (Memory::new(LEN), mover(&cache));
    for round in 0..5 {
        memory.fill(round);
        assert!(is_right(&mut mover, &acquire(&cache, &memory), &memory));
    }
    let stats = cache.stats();
    assert_eq!((stats.registrations, stats.hits), (1, 4), "{stats:?}");
    memory.remap();
    cache.invalidate(PageRange::covering(memory.addr.addr(), LEN).unwrap());
    memory.fill(77);
    assert!(is_right(&mut mover, &acquire(&cache, &memory), &memory));
    assert_eq!(cache.stats().registrations, 2);
    cache.close(Duration::from_secs(1)).unwrap();
}

#[test]
fn pinned_without_a_monitor_moves_stale_bytes() {
    let device = device_or_skip!();
    let cache = cache_with(&device, Options::default(), Arc::new(NoMonitor::new()));
    let (memory, mut mover) = (Memory::new(LEN), mover(&cache));
    memory.fill(1);
    assert!(is_right(&mut mover, &acquire(&cache, &memory), &memory));
    memory.remap();
    memory.fill(2);
    assert!(!is_right(&mut mover, &acquire(&cache, &memory), &memory), "the hazard is gone?");
}

#[test]
fn on_demand_survives_a_remap_without_a_registration_or_says_that_it_is_not_there() {
    let device = device_or_skip!();
    let options = Options::default().paging(Paging::OnDemand);
    if !has_on_demand(&device) {
        let lacks = Verbs::open(&device, options).unwrap_err();
        assert!(matches!(&lacks, OpenError::NoOnDemandPaging { device: d } if *d == device));
        return eprintln!("on-demand paging: {lacks}");
    }
    let cache = cache_with(&device, options, Arc::new(NoMonitor::new()));
    let (memory, mut mover) = (Memory::new(LEN), mover(&cache));
    memory.fill(1);
    assert!(is_right(&mut mover, &acquire(&cache, &memory), &memory));
    for round in 2..20 {
        memory.remap();
        memory.fill(round);
        assert!(is_right(&mut mover, &acquire(&cache, &memory), &memory), "round {round}");
    }
    let stats = cache.stats();
    assert_eq!((stats.registrations, stats.hits), (1, 18), "{stats:?}");
}

#[test]
fn what_is_longer_than_the_device_takes_goes_in_pieces() {
    let device = device_or_skip!();
    if !has_on_demand(&device) {
        return eprintln!("skipped: no on-demand paging");
    }
    let cache = cache(&device, Options::default().paging(Paging::OnDemand));
    let longest = cache.provider().caps().max_region_bytes;
    eprintln!("longest on-demand region: {} MiB", longest >> 20);
    let whole = longest as usize + (3 << 12);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), whole, libc::PROT_READ, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: nothing is transferred.
    let refused = unsafe { cache.acquire(at.cast(), whole, Access::READ) };
    assert!(matches!(refused, Err(AcquireError::TooLong { .. })), "{refused:?}");
    let range = PageRange::covering(at as usize, whole).unwrap();
    let held: Vec<_> = pieces(range, longest)
        // SAFETY: as above.
        .map(|p| unsafe { cache.acquire(p.start() as *const u8, p.len_bytes(), Access::READ) }.unwrap())
        .collect();
    assert_eq!(held.len(), 2);
    drop(held);
    // SAFETY: mapped above.
    unsafe { libc::munmap(at, whole) };
}

#[test]
fn prefetch_works_or_names_what_is_missing() {
    let device = device_or_skip!();
    if !has_on_demand(&device) {
        return eprintln!("skipped: no on-demand paging");
    }
    let cache = cache(&device, Options::default().paging(Paging::OnDemand));
    let memory = Memory::new(LEN);
    let held = acquire(&cache, &memory);
    match cache.provider().prefetch(held.key(), held.range(), Access::READ_WRITE) {
        Ok(()) => cache.provider().prefetch_resident(held.key(), held.range()).unwrap(),
        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::Unsupported, "{e}"),
    }
}

#[test]
fn memory_that_cannot_be_registered_is_a_typed_error() {
    let device = device_or_skip!();
    let cache = cache(&device, Options::default());
    let memory = Memory::new(LEN);
    // SAFETY: ours.
    assert_eq!(unsafe { libc::mprotect(memory.addr.cast(), LEN, libc::PROT_READ) }, 0);
    // SAFETY: nothing is transferred.
    let refused = unsafe { cache.acquire(memory.addr, LEN, Access::READ_WRITE) }.unwrap_err();
    let AcquireError::Register(why) = &refused else { panic!("{refused:?}") };
    assert!(matches!(**why, RegisterError::Unsupported { .. }), "{why:?}");
    assert_eq!(cache.stats().regions_registered, 0);
}

#[test]
fn works_on_a_domain_that_is_there_already() {
    let device = device_or_skip!();
    let owner = Verbs::open(&device, Options::default()).unwrap();
    // SAFETY: `owner` outlives the second provider.
    let lent = unsafe { Verbs::from_pd(owner.as_raw_pd(), Options::default()) }.unwrap();
    assert_eq!(lent.device(), device);
    let memory = Memory::new(LEN);
    memory.fill(9);
    let range = PageRange::covering(memory.addr.addr(), LEN).unwrap();
    // SAFETY: transfers are waited for.
    let region = unsafe { lent.register(range, Access::READ_WRITE) }.unwrap();
    let mut mover = Mover::new(&owner, &EndpointOptions::default(), 1, LEN).unwrap();
    assert_eq!(mover.write(lent.key(&region), memory.addr, LEN).unwrap(), memory.bytes());
    lent.deregister(region).unwrap();
    drop(lent);
    assert!(mover.write(pindown::provider::verbs::Key { lkey: 1, rkey: 1 }, memory.addr, LEN).is_err());
}

#[test]
fn a_buffer_unmapped_under_posted_work_harms_no_other() {
    let device = device_or_skip!();
    let cache = cache(&device, Options::default());
    unmap_under_posted_work(&cache, |range| _ = cache.invalidate(range));
}

#[test]
fn the_monitor_sees_a_buffer_unmapped_under_posted_work() {
    let device = device_or_skip!();
    let cache = Builder::new(Verbs::open(&device, Options::default()).unwrap()).build().unwrap();
    if cache.monitor().name() == "uncached" {
        return eprintln!("skipped: no monitor starts here");
    }
    eprintln!("monitor {}", cache.monitor().name());
    unmap_under_posted_work(&cache, |_| {});
}

/// `told` is what the program does beside unmapping.
fn unmap_under_posted_work(cache: &Cache<Verbs>, told: impl Fn(PageRange)) {
    let (near, far) = Endpoint::pair(cache.provider(), &EndpointOptions::default()).unwrap();
    let (source, sink, bystander) = (Memory::new(1 << 20), Memory::new(1 << 20), Memory::new(1 << 20));
    source.fill(3);
    bystander.fill(5);
    let (sent, untouched) = (source.bytes(), bystander.bytes());
    // SAFETY: nothing refers to the sink's bytes until the work is done.
    let target = unsafe { cache.acquire(sink.addr, sink.len, Access::REMOTE_WRITE) }.unwrap();
    let hold = acquire(cache, &source);
    let segment = Segment { addr: source.addr.addr(), len_bytes: 1 << 20, lkey: hold.key().lkey };
    let remote = Remote { addr: sink.addr.addr() as u64, rkey: target.key().rkey };
    for _ in 0..8 {
        // SAFETY: the endpoint keeps the hold until the completion; only the device reads.
        unsafe { near.post(Request::Write(remote), segment, hold.clone()) }.unwrap();
    }
    let (addr, len) = (source.addr, source.len);
    source.unmap();
    std::mem::forget(source);
    let range = PageRange::covering(addr.addr(), len).unwrap();
    told(range);
    assert!(cache.lookup(addr, len, Access::READ).is_none(), "what is there is no longer registered");
    let reused = Memory::new(1 << 20); // may get the address
    reused.fill(99);
    let innocent = reused.bytes();
    assert!(hold.is_stale());
    drop(hold);
    assert_eq!(near.in_flight(), 8);
    assert!(matches!(cache.flush(range), Err(FlushError::Held { .. })), "held by the posted work");
    for _ in 0..8 {
        let done = near.wait(Duration::from_secs(20)).unwrap();
        eprintln!("work {} after munmap: {:?}", done.id, done.result);
    }
    assert_eq!((near.in_flight(), far.in_flight()), (0, 0));
    assert_eq!((bystander.bytes(), reused.bytes()), (untouched, innocent));
    assert_eq!(sink.bytes(), sent, "the old pages, whole: they were held");
    cache.flush(range).unwrap();
    drop(target);
    assert_eq!(cache.stats().regions_registered, 1, "the source's region went after its put");
}

#[test]
fn pinned_pages_stay_the_parents_across_fork() {
    let device = device_or_skip!();
    let cache = cache(&device, Options::default());
    eprintln!("fork state: {:?}", cache.provider().fork_state());
    if cache.provider().fork_state() == ForkState::Disabled {
        return eprintln!("skipped: this kernel does not copy pinned pages at fork");
    }
    let (memory, mut mover) = (Memory::new(LEN), mover(&cache));
    memory.fill(1);
    let held = acquire(&cache, &memory);
    // SAFETY: the child only sleeps and ends, without running anything of Rust's.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: async-signal-safe calls.
        unsafe {
            libc::usleep(300_000);
            libc::_exit(0);
        }
    }
    memory.fill(2); // copy-on-write would give the parent other pages than those pinned
    assert!(is_right(&mut mover, &held, &memory));
    let mut status = 0;
    // SAFETY: our child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
}

/// Memory regions that this thread made, as the kernel counts them (`rdma-resource(8)`; its `pid`
/// is a thread's).
fn regions_of_this_thread() -> Option<usize> {
    let out = std::process::Command::new("rdma").args(["resource", "show", "mr"]).output().ok()?;
    // SAFETY: takes nothing and cannot fail.
    let mine = format!(" pid {} ", unsafe { libc::gettid() });
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    out.status.success().then(|| text.lines().filter(|line| line.contains(&mine)).count())
}

#[test]
fn ten_thousand_remaps_leave_the_device_as_it_was() {
    let device = device_or_skip!();
    let cache = cache(&device, Options::default());
    let before = regions_of_this_thread();
    let memory = Memory::new(16 << 10);
    let range = PageRange::covering(memory.addr.addr(), memory.len).unwrap();
    let mut most = 0;
    for cycle in 0..10_000 {
        let sample = cycle % 1000 == 500;
        if sample {
            cache.flush(range).unwrap();
        }
        let held = acquire(&cache, &memory);
        if sample {
            most = most.max(regions_of_this_thread().unwrap_or(0));
        }
        drop(held);
        memory.remap();
        cache.invalidate(range);
    }
    cache.flush(range).unwrap();
    let stats = cache.stats();
    assert_eq!((stats.registrations, stats.deregistrations, stats.regions_registered), (10_000, 10_000, 0));
    match before {
        Some(before) => {
            eprintln!("rdma resource: {before} regions before, at most {most} meanwhile");
            assert_eq!(most, before + 1);
            assert_eq!(regions_of_this_thread(), Some(before));
        }
        None => eprintln!("rdma(8) is not installed: the kernel's own count was not compared"),
    }
}

/// `PINDOWN_UNPLUG` is the command that takes the device away, e.g. `ip link delete d0`. It ends
/// the device for all other tests, so it is run by itself (`--ignored`).
#[test]
#[ignore = "takes the device away; needs PINDOWN_UNPLUG"]
fn a_device_taken_away_is_an_error_and_the_books_balance() {
    let device = device_or_skip!();
    let unplug = std::env::var("PINDOWN_UNPLUG").expect("the command that takes the device away");
    let cache = cache(&device, Options::default());
    let (memory, other, mut mover) = (Memory::new(LEN), Memory::new(LEN), mover(&cache));
    memory.fill(1);
    let held = acquire(&cache, &memory);
    mover.write(held.key(), memory.addr, LEN).unwrap();
    let mut child = std::process::Command::new("sh").args(["-c", &unplug]).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    eprintln!("unplugged: {:?}", child.try_wait());
    // SAFETY: the device only reads.
    let refused = unsafe { cache.acquire(other.addr, LEN, Access::READ_WRITE) };
    let moved = mover.write(held.key(), memory.addr, LEN).map(<[u8]>::len);
    eprintln!("acquire: {:?}, transfer: {moved:?}", refused.as_ref().map(|r| r.range()));
    assert!(moved.is_err(), "bytes went through a device that is not there");
    match &refused {
        Err(AcquireError::Register(why)) => {
            assert!(matches!(**why, RegisterError::DeviceGone { .. }), "{why:?}")
        }
        // A driver that lets nobody go before the last user has closed it.
        other => assert!(other.is_ok() && child.try_wait().unwrap().is_none(), "{other:?}"),
    }
    drop((held, refused));
    cache.flush(PageRange::everything()).unwrap();
    let stats = cache.stats();
    assert_eq!((stats.regions_registered, stats.regions_pending), (0, 0), "{stats:?}");
    eprintln!("{} regions went with the device", cache.provider().lost_with_device());
    drop(mover);
    cache.close(Duration::from_secs(1)).unwrap();
    let status = child.wait();
    eprintln!("after close: {status:?}");
}
