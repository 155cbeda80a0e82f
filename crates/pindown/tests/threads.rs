//! Threads that end while they hold, that panic, and that use the cache while they are torn down: what
//! they held stays usable, what they had is given back, and nothing grows. Bytes move through io_uring.
#![cfg(all(feature = "io-uring", feature = "uffd"))]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicIsize, AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use pindown::core::DeregisterFailed;
use pindown::provider::io_uring::{Mover, UringKey, UringMr, UringProvider};
use pindown::{
    Access, AcquireError, Builder, Cache, MonitorChoice, PAGE_SIZE, PageRange, Provider, ProviderCaps,
    RegisterError, Registration,
};
use support::moving::Moving;
use support::{Map, in_own_process};

/// Counts what is allocated.
struct Counting;

static LIVE_BYTES: AtomicIsize = AtomicIsize::new(0);

// SAFETY: each call is passed on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Ten thousand threads take a page each. One in ten leaves its hold to us, which is used after the
/// thread is gone. The slots that threads hold by are used again, so memory stays flat.
#[test]
fn threads_that_exit_while_holding() {
    in_own_process("threads_that_exit_while_holding", || {
        let Some(mut moving) = Moving::new() else { return };
        let map = Map::filled(32, 0);
        (0..32).for_each(|page| fill(&map, page, page as u8));
        let mut left = Vec::new();
        let mut after_warm_up = 0;
        for n in 0..1_000usize {
            let takers: Vec<_> = (0..10).map(|i| take_on(&moving.cache, &map, (n + i) % 32)).collect();
            let mut taken = takers.into_iter().map(|taker| taker.join().expect("it takes"));
            left.extend(taken.next());
            taken.for_each(drop);
            if left.len() == 40 {
                check_and_put(&mut moving, &map, &mut left);
            }
            if n == 100 {
                after_warm_up = LIVE_BYTES.load(Ordering::Relaxed);
            }
        }
        check_and_put(&mut moving, &map, &mut left);
        let grown = LIVE_BYTES.load(Ordering::Relaxed) - after_warm_up;
        println!("9000 threads: {grown} bytes more");
        assert!(grown < 64 << 10, "{grown} bytes are left of 9000 threads");
        moving.close();
    });
}

/// What dead threads hold is never pulled away, although its memory is; and it is given back after the put.
#[test]
fn what_dead_threads_hold_stays_registered() {
    in_own_process("what_dead_threads_hold_stays_registered", || {
        let Some(mut moving) = Moving::new() else { return };
        let map = Map::filled(8, b'o');
        // More than a thread has slots, so that some are held by count.
        let takers = (0..24usize).map(|n| {
            let (cache, at) = (moving.cache.clone(), address(&map, n % 8));
            std::thread::spawn(move || (n % 8, (0..3).map(|_| take(&cache, at)).collect::<Vec<_>>()))
        });
        let takers: Vec<_> = takers.collect();
        let held: Vec<_> = takers.into_iter().map(|t| t.join().unwrap()).collect();
        map.unmap_and_map_again();
        map.fill(b'n');
        for (page, holds) in &held {
            for hold in holds {
                let sent = moving.send_by(hold, address(&map, *page).0, PAGE_SIZE).expect("still registered");
                assert!(sent.iter().all(|b| *b == b'o'), "a held registration keeps its pages");
                moving.cache.drive();
                assert!(hold.is_stale());
            }
        }
        assert!(moving.send(map.ptr(), map.len()).iter().all(|b| *b == b'n'));
        // The puts come from other threads too.
        std::thread::spawn(move || drop(held)).join().unwrap();
        moving.close();
    });
}

#[test]
fn a_panic_in_user_code_puts_what_is_held() {
    in_own_process("a_panic_in_user_code_puts_what_is_held", || {
        let Some(mut moving) = Moving::new() else { return };
        let map = Map::filled(4, 7);
        let at = address(&map, 0);
        for round in 0..100 {
            let cache = moving.cache.clone();
            let body = move || {
                let _holds: Vec<_> = (0..20).map(|_| take(&cache, at)).collect();
                quiet_panic();
            };
            match round % 2 {
                0 => assert!(catch_unwind(AssertUnwindSafe(body)).is_err()),
                _ => assert!(std::thread::spawn(body).join().is_err()),
            }
        }
        moving.cache.flush(map.range()).expect("unwinding has put everything");
        assert_eq!(moving.cache.provider().registered(), 0);
        assert_eq!(moving.send(map.ptr(), PAGE_SIZE), [7; PAGE_SIZE]);
        moving.close();
    });
}

/// A [`UringProvider`] whose calls panic when told to.
#[derive(Debug)]
struct Faulty {
    ring: UringProvider,
    register_panics: AtomicU32,
    deregister_panics: AtomicU32,
}

fn panic_if_told(left: &AtomicU32) {
    if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
        quiet_panic();
    }
}

// SAFETY: all is passed on to a provider that keeps the contract, or does not return.
unsafe impl Provider for Faulty {
    type Mr = UringMr;
    type Key = UringKey;
    fn name(&self) -> &'static str {
        "faulty"
    }
    fn caps(&self) -> ProviderCaps {
        self.ring.caps()
    }
    fn key(&self, mr: &UringMr) -> UringKey {
        self.ring.key(mr)
    }
    unsafe fn register(&self, range: PageRange, access: Access) -> Result<UringMr, RegisterError> {
        panic_if_told(&self.register_panics);
        // SAFETY: passed on.
        unsafe { self.ring.register(range, access) }
    }
    fn deregister(&self, mr: UringMr) -> Result<(), DeregisterFailed<UringMr>> {
        panic_if_told(&self.deregister_panics);
        self.ring.deregister(mr)
    }
}

/// The caller gets the panic, those who wait for the same range an error, and the cache goes on.
#[test]
fn a_panic_in_the_provider_spoils_nothing() {
    in_own_process("a_panic_in_the_provider_spoils_nothing", || {
        let Some((mut mover, cache)) = faulty() else { return };
        let map = Map::filled(4, 9);
        let at = address(&map, 0);
        for _ in 0..20 {
            cache.provider().register_panics.store(1, Ordering::SeqCst);
            let takers: Vec<_> = (0..4).map(|_| take_on_thread(&cache, at)).collect();
            let outcomes: Vec<_> = takers.into_iter().map(|t| t.join()).collect();
            let panicked = outcomes.iter().filter(|o| o.is_err()).count();
            let told = |o: &&std::thread::Result<_>| matches!(o, Ok(Err(AcquireError::Panicked)));
            assert_eq!(panicked, 1, "the one that registered: {outcomes:?}");
            let served = outcomes.iter().filter(|o| matches!(o, Ok(Ok(_)))).count();
            assert_eq!(served + outcomes.iter().filter(told).count(), 3, "{outcomes:?}");
            drop(outcomes);
            let hold = acquire(&cache, at).expect("the next attempt registers");
            assert_eq!(mover.write_fixed(hold.key(), map.ptr(), PAGE_SIZE).unwrap(), [9; PAGE_SIZE]);
            drop(hold);
            cache.flush(map.range()).expect("nobody holds it");
        }
        assert_eq!(cache.provider().ring.registered(), 0);
        // The device may still have what panicked on its way out: it stays charged, and the worker lives.
        cache.provider().deregister_panics.store(1, Ordering::SeqCst);
        drop(acquire(&cache, at).unwrap());
        map.unmap_and_map_again();
        wait_until("the worker tried", || cache.provider().deregister_panics.load(Ordering::SeqCst) == 0);
        assert_eq!(cache.provider().ring.registered(), 1);
        map.fill(8);
        let hold = acquire(&cache, at).expect("registers beside it");
        assert_eq!(mover.write_fixed(hold.key(), map.ptr(), PAGE_SIZE).unwrap(), [8; PAGE_SIZE]);
        drop(hold);
        map.unmap_and_map_again();
        wait_until("the worker goes on", || cache.provider().ring.registered() == 1);
    });
}

fn faulty() -> Option<(Mover, Cache<Faulty>)> {
    drop(Moving::new()?); // says why not
    let mover = Mover::new(1, PAGE_SIZE).expect("as just now");
    let ring = UringProvider::new(mover.ring()).expect("as just now");
    let none = || AtomicU32::new(0);
    let provider = Faulty { ring, register_panics: none(), deregister_panics: none() };
    let cache = Builder::new(provider).monitor(MonitorChoice::Uffd).build().expect("as just now");
    Some((mover, cache))
}

/// What a thread does while it is torn down.
struct Last {
    cache: Cache<UringProvider>,
    at: Address,
    kept: Option<Registration<UringProvider>>,
    say: Sender<Registration<UringProvider>>,
}

impl Drop for Last {
    fn drop(&mut self) {
        self.kept = None;
        for _ in 0..40 {
            let hold = take(&self.cache, self.at);
            drop(self.cache.lookup(self.at.0, PAGE_SIZE, Access::READ));
            drop(hold.clone());
            drop(hold);
        }
        self.say.send(take(&self.cache, self.at)).expect("the test listens");
    }
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Destructors of thread-local values run last made first, so both orders are made: with the thread's
/// slots still there, and after they were given back.
#[test]
fn a_thread_that_is_torn_down_may_acquire_and_put() {
    in_own_process("a_thread_that_is_torn_down_may_acquire_and_put", || {
        let Some(mut moving) = Moving::new() else { return };
        let map = Map::filled(2, 5);
        let (at, (say, hear)) = (address(&map, 0), channel());
        for round in 0..200 {
            let (cache, say) = (moving.cache.clone(), say.clone());
            let thread = std::thread::spawn(move || {
                let before = (round % 2 == 0).then(|| take(&cache, at));
                let kept = (round % 4 < 2).then(|| take(&cache, at));
                LAST.set(Some(Last { cache: cache.clone(), at, kept, say }));
                drop(before);
                drop(take(&cache, at));
            });
            thread.join().expect("it ends well");
            let hold = hear.recv().expect("taken on the way out");
            assert_eq!(moving.send_by(&hold, map.ptr(), PAGE_SIZE).unwrap(), [5; PAGE_SIZE]);
        }
        moving.cache.flush(map.range()).expect("all is put");
        moving.close();
    });
}

/// The address of a test's page, for threads.
#[derive(Clone, Copy)]
struct Address(*const u8);

// SAFETY: a number; the tests keep the mapping.
unsafe impl Send for Address {}

fn address(map: &Map, page: usize) -> Address {
    Address(map.ptr().wrapping_add(page * PAGE_SIZE))
}

fn fill(map: &Map, page: usize, byte: u8) {
    // SAFETY: a page of the test's mapping, to which nothing refers.
    unsafe { map.ptr().add(page * PAGE_SIZE).write_bytes(byte, PAGE_SIZE) };
}

fn acquire<P: Provider>(cache: &Cache<P>, at: Address) -> Result<Registration<P>, AcquireError> {
    // SAFETY: the tests only send from it.
    unsafe { cache.acquire(at.0, PAGE_SIZE, Access::READ) }
}

fn take<P: Provider>(cache: &Cache<P>, at: Address) -> Registration<P> {
    acquire(cache, at).expect("it registers")
}

type Taken = Result<Registration<Faulty>, AcquireError>;

fn take_on_thread(cache: &Cache<Faulty>, at: Address) -> std::thread::JoinHandle<Taken> {
    let cache = cache.clone();
    std::thread::spawn(move || {
        let at = at;
        acquire(&cache, at)
    })
}

fn check_and_put(moving: &mut Moving, map: &Map, left: &mut Vec<Page>) {
    for (page, hold) in left.drain(..) {
        let sent = moving.send_by(&hold, address(map, page).0, PAGE_SIZE).expect("held");
        assert_eq!(sent, [page as u8; PAGE_SIZE]);
    }
}

type Page = (usize, Registration<UringProvider>);

fn take_on(cache: &Cache<UringProvider>, map: &Map, page: usize) -> std::thread::JoinHandle<Page> {
    let (cache, at) = (cache.clone(), address(map, page));
    std::thread::spawn(move || (page, take(&cache, at)))
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Without the message on standard error.
fn quiet_panic() -> ! {
    std::panic::resume_unwind(Box::new("the test was told to panic"))
}
