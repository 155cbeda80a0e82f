//! Threads that acquire, hold, transfer, put elsewhere and exit, against changes, eviction and the
//! reaper. `PINDOWN_STRESS_SECONDS` (3) says for how long, `PINDOWN_STRESS_SEED` (1) from which seed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use pindown::core::sim::{Sim, SimKey, Step};
use pindown::core::{Cache, PlainHost};
use pindown::{
    Access, AcquireError, Config, Coverage, Delivery, EventKind, Host, LinuxHost, Mapping, Monitor,
    MonitorError, Notifier, PAGE_SIZE, PageRange, Provider, Registration, Reservation, Stamp, Subscription,
    Validity,
};

const BASE_PAGE: u64 = 0x20_0000 - 40;
const PAGES: u64 = 96;
/// From here on changes are not reported, but found at lookup.
const CHECKED_FROM: u64 = 64;
/// More than a thread has slots.
const HOLDS: u64 = 24;

fn range(first: u64, pages: u64) -> PageRange {
    PageRange::from_pages(BASE_PAGE + first, pages).unwrap()
}

/// xorshift64*: good enough to vary, and reproducible.
struct Rng(u64);

impl Rng {
    fn new(stream: u64) -> Self {
        let seed: u64 = env("PINDOWN_STRESS_SEED", 1);
        Self(((seed << 32) | (stream + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % n
    }
}

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |s| s.parse().expect("a number"))
}

/// Reports changes of the lower pages; the upper ones must be asked about.
#[derive(Debug)]
struct Half {
    versions: Vec<AtomicU64>,
    open: AtomicU64,
}

impl Half {
    fn checked(&self, wanted: PageRange) -> impl Iterator<Item = &AtomicU64> {
        let zone = range(CHECKED_FROM, PAGES - CHECKED_FROM);
        let both = wanted.intersection(zone);
        let pages = both.map_or(0..0, |r| r.first_page() - BASE_PAGE..r.end_page() - BASE_PAGE);
        pages.map(|page| &self.versions[page as usize])
    }
    fn stamp(&self, wanted: PageRange) -> Stamp {
        Stamp([self.checked(wanted).map(|v| v.load(Ordering::Acquire)).sum(), 0, 0, 0])
    }
}

impl Monitor for Half {
    fn name(&self) -> &'static str {
        "half"
    }
    fn coverage(&self) -> Coverage {
        Coverage::default()
    }
    fn delivery(&self) -> Delivery {
        Delivery::BeforeReturn
    }
    fn start(&self, _: Notifier) -> Result<(), MonitorError> {
        Ok(())
    }
    fn subscribe(&self, wanted: PageRange, _: Access) -> Result<Subscription, MonitorError> {
        self.open.fetch_add(1, Ordering::Relaxed);
        let checked = self.checked(wanted).next().is_some();
        Ok(if checked { Subscription::Checked(self.stamp(wanted)) } else { Subscription::Events })
    }
    fn unsubscribe(&self, _: PageRange) {
        assert!(self.open.fetch_sub(1, Ordering::Relaxed) > 0, "unsubscribed too often");
    }
    fn validate(&self, wanted: PageRange, stamp: Stamp) -> Validity {
        if self.stamp(wanted) == stamp { Validity::Valid } else { Validity::Changed }
    }
    fn stop(&self) {}
}

/// A host on which the pages are one mapping, so that registrations are widened.
#[derive(Debug)]
struct Mapped<H>(H);

impl<H: Host> Host for Mapped<H> {
    fn reserve(&self, bytes: usize) -> Option<Reservation> {
        self.0.reserve(bytes)
    }
    fn reserve_kept(&self, bytes: usize) -> Option<Reservation> {
        self.0.reserve_kept(bytes)
    }
    unsafe fn release(&self, reservation: Reservation) {
        // SAFETY: passed on.
        unsafe { self.0.release(reservation) }
    }
    fn has_asymmetric_fence(&self) -> bool {
        self.0.has_asymmetric_fence()
    }
    fn asymmetric_fence(&self) {
        self.0.asymmetric_fence();
    }
    fn mapping(&self, wanted: PageRange) -> Option<Mapping> {
        let all = range(0, PAGES);
        all.contains(wanted).then_some(Mapping { range: all, readable: true, writable: true })
    }
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
}

/// One cache, its memory, and what a request may expect.
struct World {
    sim: Sim,
    cache: Cache<Sim>,
    monitor: Arc<Half>,
    /// The frame of each page after its last completed change: what is acquired later has that or
    /// a newer one (frames are numbered in order).
    floor: Vec<AtomicU64>,
    /// Reads the page table.
    probe: SimKey,
    requests: AtomicU64,
    changes: AtomicU64,
}

struct Kept {
    world: Arc<World>,
    registration: Registration<Sim>,
}

impl World {
    fn new(host: Arc<dyn Host>, stream: u64) -> Arc<Self> {
        let sim = Sim::new();
        // SAFETY: the simulated device touches no memory.
        let probe = unsafe { sim.register(range(0, PAGES), Access::READ) }.unwrap();
        let probe = sim.key(&probe);
        let numbers = || (0..PAGES).map(|_| AtomicU64::new(0)).collect();
        let monitor = Arc::new(Half { versions: numbers(), open: AtomicU64::new(0) });
        let mut config = Config::default();
        config.max_regions = Some(120);
        let cache = Cache::new(sim.clone(), monitor.clone(), host, config).unwrap();
        let (requests, changes) = (AtomicU64::new(0), AtomicU64::new(0));
        let world = Arc::new(Self { sim, cache, monitor, floor: numbers(), probe, requests, changes });
        Self::change_within_registrations(&world, stream);
        world
    }

    /// Some registrations find their memory changed between pinning and return, and some before.
    fn change_within_registrations(self_: &Arc<Self>, stream: u64) {
        let (weak, calls) = (Weak::clone(&Arc::downgrade(self_)), AtomicU64::new(0));
        self_.sim.on_step(move |step, at| {
            let n = calls.fetch_add(1, Ordering::Relaxed);
            let mut rng = Rng::new(stream << 40 | n);
            if step != Step::BeforeUnpin && rng.below(16) == 0 {
                if let Some(world) = weak.upgrade() {
                    world.change(at.first_page() - BASE_PAGE, 1);
                }
            }
        });
    }

    /// When this returns, the change has completed.
    fn change(&self, first: u64, pages: u64) {
        let changed = range(first, pages);
        self.sim.remap(changed);
        self.monitor.checked(changed).for_each(|v| _ = v.fetch_add(1, Ordering::AcqRel));
        if first < CHECKED_FROM {
            self.cache.notifier().invalidate(changed, EventKind::Unmap);
        }
        for page in first..first + pages {
            let now = self.sim.transfer(self.probe, BASE_PAGE + page).unwrap().mapped;
            self.floor[page as usize].fetch_max(now, Ordering::AcqRel);
        }
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    fn request(self: &Arc<Self>, rng: &mut Rng) -> Option<Kept> {
        let pages = 1 + rng.below(6);
        let first = rng.below(PAGES - pages);
        let access = [Access::READ, Access::READ_WRITE, Access::REMOTE_READ][rng.below(3) as usize];
        let floor: Vec<_> = self.floor[first as usize..(first + pages) as usize]
            .iter()
            .map(|f| f.load(Ordering::Acquire))
            .collect();
        let at = std::ptr::without_provenance(range(first, pages).start());
        let got = match rng.below(4) {
            0 => self.cache.lookup(at, pages as usize * PAGE_SIZE, access),
            // SAFETY: the simulated device touches no memory.
            _ => match unsafe { self.cache.acquire(at, pages as usize * PAGE_SIZE, access) } {
                Ok(got) => Some(got),
                Err(AcquireError::Budget { .. }) => None,
                Err(error) => panic!("{error}"),
            },
        };
        self.requests.fetch_add(1, Ordering::Relaxed);
        let registration = got?;
        for (page, floor) in (first..).zip(&floor) {
            let pinned = self.sim.transfer(registration.key(), BASE_PAGE + page).expect("held").pinned;
            assert!(
                pinned >= *floor,
                "stale: page {page} has frame {pinned}, was {floor} before the request"
            );
        }
        Some(Kept { world: self.clone(), registration })
    }
}

impl Kept {
    /// Held: usable, all of it.
    fn check(&self) {
        let all = self.registration.range();
        for page in [all.first_page(), all.end_page() - 1] {
            self.world.sim.transfer(self.registration.key(), page).expect("held");
        }
    }
}

fn work(worlds: &[Arc<World>], stream: u64, elsewhere: &SyncSender<Kept>, stop: &AtomicBool) {
    let (mut rng, mut kept) = (Rng::new(stream), Vec::<Kept>::new());
    while !stop.load(Ordering::Relaxed) {
        kept.extend(worlds[rng.below(worlds.len() as u64) as usize].request(&mut rng));
        while kept.len() as u64 > rng.below(HOLDS) {
            let one = kept.swap_remove(rng.below(kept.len() as u64) as usize);
            one.check();
            match rng.below(8) {
                0 => match elsewhere.try_send(one) {
                    Err(TrySendError::Full(one)) => kept.push(one),
                    result => result.unwrap(),
                },
                1 => kept.push(Kept { world: one.world.clone(), registration: one.registration.clone() }),
                _ => {}
            }
        }
    }
    kept.iter().for_each(Kept::check);
}

/// Threads that exit while what they took is held.
fn come_and_go(worlds: &[Arc<World>], stop: &AtomicBool) {
    let mut stream = 1000;
    while !stop.load(Ordering::Relaxed) {
        stream += 1;
        let world = worlds[stream as usize % worlds.len()].clone();
        let take = move || {
            let mut rng = Rng::new(stream);
            (0..20).filter_map(|_| world.request(&mut rng)).collect::<Vec<_>>()
        };
        let kept = std::thread::spawn(take).join().unwrap();
        kept.iter().for_each(Kept::check);
    }
}

fn change(worlds: &[Arc<World>], stop: &AtomicBool) {
    let mut rng = Rng::new(500);
    while !stop.load(Ordering::Relaxed) {
        let pages = 1 + rng.below(4);
        worlds[rng.below(worlds.len() as u64) as usize].change(rng.below(PAGES - pages), pages);
        match rng.below(64) {
            0 => std::thread::sleep(Duration::from_millis(1)),
            1..16 => std::thread::yield_now(),
            _ => {}
        }
    }
}

fn drive(worlds: &[Arc<World>], stop: &AtomicBool) {
    let mut rng = Rng::new(501);
    while !stop.load(Ordering::Relaxed) {
        for world in worlds {
            world.cache.drive();
            match rng.below(200) {
                0 => _ = world.cache.shrink(rng.below(100) * PAGE_SIZE as u64),
                1 => _ = world.cache.flush(range(rng.below(PAGES - 4), 4)),
                _ => {}
            }
        }
        std::thread::sleep(Duration::from_micros(300));
    }
}

fn stress(host: &Arc<dyn Host>) {
    let worlds: Vec<_> = (0..3).map(|n| World::new(host.clone(), n + 10)).collect();
    let (stop, started) = (AtomicBool::new(false), Instant::now());
    let (elsewhere, puts) = sync_channel::<Kept>(64);
    std::thread::scope(|scope| {
        let (worlds, stop) = (&worlds[..], &stop);
        for stream in 0..3 {
            let elsewhere = elsewhere.clone();
            scope.spawn(move || work(worlds, stream, &elsewhere, stop));
        }
        drop(elsewhere);
        scope.spawn(move || puts.into_iter().for_each(|kept| kept.check()));
        scope.spawn(|| come_and_go(worlds, stop));
        scope.spawn(|| change(worlds, stop));
        scope.spawn(|| drive(worlds, stop));
        std::thread::sleep(Duration::from_secs(env("PINDOWN_STRESS_SECONDS", 3)));
        stop.store(true, Ordering::Relaxed);
    });
    for world in worlds {
        end(&world, started);
    }
}

fn end(world: &World, started: Instant) {
    let _ = world.cache.clone().close(Duration::ZERO);
    world.cache.clone().close(Duration::from_secs(10)).expect("nothing is held");
    let (books, stats) = (world.sim.books(), world.cache.stats());
    assert!(books.balanced() && books.live == 1, "all but the probe: {books:?}");
    assert_eq!((stats.regions_registered, stats.bytes_registered), (0, 0));
    assert_eq!(world.monitor.open.load(Ordering::Relaxed), 0, "subscriptions left");
    assert!(books.live_peak <= 121, "{books:?}");
    assert!(stats.hits > 0 && stats.invalidated > 0, "{stats:?}");
    println!(
        "{} requests, {} changes in {:?}: {} hits, {} registered, {} raced, {} evicted, {} stale while held",
        world.requests.load(Ordering::Relaxed),
        world.changes.load(Ordering::Relaxed),
        started.elapsed(),
        stats.hits,
        books.registered,
        stats.raced,
        stats.evictions,
        stats.invalidated_held,
    );
}

#[test]
fn with_slots() {
    let host = LinuxHost::new();
    if !host.has_asymmetric_fence() {
        println!("skipped: membarrier(PRIVATE_EXPEDITED) is not available here");
        return;
    }
    stress(&(Arc::new(Mapped(host)) as Arc<dyn Host>));
}

#[test]
fn with_counted_holds() {
    stress(&(Arc::new(Mapped(PlainHost::default())) as Arc<dyn Host>));
}
