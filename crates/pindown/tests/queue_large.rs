//! Large submissions and watches over the simulated provider.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pindown::provider::sim::{Call, Fault, Sim, SimConfig};
use pindown::queue::{Completion, Done, Progress, Queue, QueueError, Submitted, Ticket};
use pindown::{Access, Builder, Cache, Ended, MonitorChoice, PAGE_SIZE, PageRange};

const BASE: usize = 0x2000_0000;
const PIECE: usize = 16 * PAGE_SIZE;

fn cache(sim: &Sim) -> Cache<Sim> {
    Builder::new(sim.clone()).monitor(MonitorChoice::Manual).sweep(false).build().unwrap()
}

fn at(offset: usize) -> *const u8 {
    std::ptr::without_provenance(BASE + offset)
}

fn queue(cache: &Cache<Sim>, threads: usize) -> Queue<Sim> {
    Queue::<Sim>::builder().threads(threads).piece_bytes(PIECE).build(cache).unwrap()
}

fn next(queue: &Queue<Sim>) -> Completion<Sim> {
    queue.wait(Duration::from_secs(20)).expect("a completion within 20 s")
}

fn large(queue: &Queue<Sim>, len: usize, report: impl Fn(Progress) + Send + Sync + 'static) -> Ticket {
    // SAFETY: the simulated device touches no memory.
    match unsafe { queue.submit_large(at(100), len, Access::READ, 5, report) }.unwrap() {
        Submitted::Pending(ticket) => ticket,
        Submitted::Hit(segments) => panic!("{segments:?}"),
    }
}

fn slow(millis: u64) -> Sim {
    let mut config = SimConfig::default();
    config.register_latency = Duration::from_millis(millis);
    Sim::with(config)
}

#[test]
fn pieces_cover_the_request_without_gaps_and_report() {
    let cache = cache(&Sim::new());
    let queue = queue(&cache, 3);
    let reports = Arc::new(Mutex::new(Vec::new()));
    let (len, log) = (5 * PIECE + 7, reports.clone());
    large(&queue, len, move |progress| log.lock().unwrap().push(progress));
    let completion = next(&queue);
    let Ok(Done::Segments(segments)) = completion.result else { panic!("{completion:?}") };
    assert_eq!((completion.user_data, segments.count(), segments.len_bytes()), (5, 6, len));
    let mut at_next = BASE + 100;
    for segment in &segments {
        assert_eq!(segment.addr().addr(), at_next);
        let pages = PageRange::covering(at_next, segment.len_bytes()).unwrap();
        assert!(segment.key().range.contains(pages));
        at_next += segment.len_bytes();
    }
    let mut reports = std::mem::take(&mut *reports.lock().unwrap());
    reports.sort_by_key(|r| r.done_bytes);
    assert_eq!(reports.len(), 6);
    assert_eq!(reports[5], Progress { done_bytes: len, total_bytes: len });
    // Again: all hits.
    // SAFETY: as in `large`.
    let again = unsafe { queue.submit_large(at(100), len, Access::READ, 6, |_| {}) };
    assert!(matches!(again, Ok(Submitted::Hit(s)) if s.count() == 6));
    assert!(queue.poll().is_none() && queue.outstanding() == 0);
}

#[test]
fn one_failed_piece_fails_the_whole_and_is_put() {
    let sim = Sim::new();
    let cache = cache(&sim);
    let queue = queue(&cache, 2);
    sim.refuse(PageRange::covering(BASE + 3 * PIECE, 1).unwrap(), Fault::Unsupported);
    large(&queue, 8 * PIECE, |_| {});
    assert!(matches!(next(&queue).result, Err(QueueError::Acquire(_))));
    sim.heal();
    large(&queue, 8 * PIECE, |p| assert!(p.done_bytes < 4 * PIECE, "told to panic"));
    assert!(matches!(next(&queue).result, Err(QueueError::Panicked)));
    sim.fail(Call::Register, 1, 1, Fault::Panic);
    // SAFETY: as in `large`.
    unsafe { queue.submit_large(at(64 * PIECE), 4 * PIECE, Access::READ, 5, |_| {}) }.unwrap();
    assert!(matches!(next(&queue).result, Err(QueueError::Panicked)));
    assert!(queue.poll().is_none() && queue.outstanding() == 0);
    drop(queue);
    cache.flush(PageRange::covering(BASE, 128 * PIECE).unwrap()).expect("nothing is held");
    assert_eq!(sim.books().live, 0);
}

#[test]
fn cancelled_and_closed_pieces_complete_the_whole_once() {
    let cache = cache(&slow(5));
    let queue = queue(&cache, 2);
    let ticket = large(&queue, 40 * PIECE, |_| {});
    assert!(queue.cancel(ticket));
    assert!(matches!(next(&queue).result, Err(QueueError::Cancelled)));
    large(&queue, 40 * PIECE, |_| {});
    queue.close();
    assert!(matches!(next(&queue).result, Err(QueueError::Closed)));
    assert!(queue.poll().is_none() && queue.outstanding() == 0);
}

#[test]
fn a_small_submission_does_not_wait_for_all_pieces() {
    let cache = cache(&slow(4));
    let queue = queue(&cache, 1);
    large(&queue, 50 * PIECE, |_| {});
    // SAFETY: as in `large`.
    unsafe { queue.submit(at(1 << 30), PAGE_SIZE, Access::READ, 6) }.unwrap();
    assert_eq!(next(&queue).user_data, 6, "before the fifty pieces");
    assert_eq!(next(&queue).user_data, 5);
}

/// The first report waits until another thread is in one too.
#[test]
fn pieces_run_in_parallel() {
    let cache = cache(&Sim::new());
    let queue = queue(&cache, 4);
    let (inside, bell) = (Mutex::new(0), Condvar::new());
    large(&queue, 40 * PIECE, move |_| {
        let mut inside = inside.lock().unwrap();
        *inside += 1;
        bell.notify_all();
        let limit = Duration::from_secs(20);
        let timeout = bell.wait_timeout_while(inside, limit, |n| *n < 2).unwrap().1;
        assert!(!timeout.timed_out(), "no second thread came");
    });
    assert!(next(&queue).result.is_ok());
}

fn watched(cache: &Cache<Sim>, queue: &Queue<Sim>, page: usize) -> (pindown::Registration<Sim>, Ticket) {
    // SAFETY: as in `large`.
    let held = unsafe { cache.acquire(at(page * PAGE_SIZE), PAGE_SIZE, Access::READ) }.unwrap();
    let ticket = queue.watch_stale(&held, page as u64).unwrap();
    (held, ticket)
}

#[test]
fn the_holder_is_told_of_a_change() {
    let cache = cache(&Sim::new());
    let queue = queue(&cache, 1);
    let (held, _) = watched(&cache, &queue, 100);
    let (_other, ticket) = watched(&cache, &queue, 300);
    cache.notifier().invalidate(held.range(), pindown::EventKind::Unmap);
    let completion = next(&queue);
    assert_eq!(completion.user_data, 100);
    assert!(matches!(completion.result, Ok(Done::Ended(Ended::Stale))) && held.is_stale());
    assert!(queue.cancel(ticket) && !queue.cancel(ticket));
    assert!(matches!(next(&queue), Completion { user_data: 300, result: Err(QueueError::Cancelled) }));
    assert_eq!(queue.outstanding(), 0);
}

#[test]
fn a_watch_holds_nothing_and_ends_with_its_region_or_queue() {
    let sim = Sim::new();
    let cache = cache(&sim);
    let (queue, other) = (queue(&cache, 1), queue(&cache, 1));
    let (held, _) = watched(&cache, &queue, 1);
    let (kept, _) = watched(&cache, &other, 300);
    let range = held.range();
    drop(held);
    cache.flush(range).expect("a watch is no hold");
    assert!(matches!(next(&queue).result, Ok(Done::Ended(Ended::Deregistered))));
    other.close();
    assert!(matches!(next(&other), Completion { user_data: 300, result: Err(QueueError::Closed) }));
    let elsewhere = self::cache(&sim);
    let foreign = Queue::new(&elsewhere).unwrap().watch_stale(&kept, 1);
    assert!(matches!(foreign, Err(pindown::queue::SubmitError::OtherCache)));
}

/// What runs in the application's code must not end the pool or hang the queue's drop.
#[test]
fn panics_in_announcements_and_wakers_are_contained() {
    #[derive(Debug)]
    struct Bad(Arc<AtomicUsize>);
    impl pindown::queue::Announce for Bad {
        fn announce(&self, _: u64, _: bool) -> std::io::Result<()> {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("the announcement was told to panic")
        }
    }
    struct BadWaker;
    impl std::task::Wake for BadWaker {
        fn wake(self: Arc<Self>) {
            panic!("the waker was told to panic")
        }
    }
    let (cache, calls) = (cache(&slow(2)), Arc::new(AtomicUsize::new(0)));
    let queue = Queue::<Sim>::builder().threads(1).announce(Bad(calls.clone())).build(&cache).unwrap();
    // SAFETY: as in `large`.
    let mut future = Box::pin(unsafe { queue.acquire(at(1 << 20), PAGE_SIZE, Access::READ) });
    let waker = Arc::new(BadWaker).into();
    let _ = future.as_mut().poll(&mut std::task::Context::from_waker(&waker));
    for page in 0..3 {
        // SAFETY: as in `large`.
        unsafe { queue.submit(at(page * PAGE_SIZE), PAGE_SIZE, Access::READ, 0) }.unwrap();
        next(&queue);
    }
    queue.close();
    assert_eq!((calls.load(Ordering::SeqCst), queue.unannounced()), (3, 3));
    assert_eq!(queue.outstanding(), 0);
}

/// The last reference to a queue may go in a closure on its own thread.
#[test]
fn a_queue_dropped_on_its_own_thread_does_not_wait_for_itself() {
    let cache = cache(&Sim::new());
    let queue = Arc::new(queue(&cache, 2));
    let (gone, told) = std::sync::mpsc::channel();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let map = vec![0u8; PAGE_SIZE];
    let own = queue.clone();
    let then = move |_: &pindown::Registration<Sim>| {
        wait.recv().unwrap();
        drop(own);
        gone.send(()).unwrap();
    };
    // SAFETY: as in `large`; the memory is there to be populated.
    unsafe { queue.prefetch_then(map.as_ptr(), 1, Access::READ, 0, then) }.unwrap();
    drop(queue);
    go.send(()).unwrap();
    told.recv_timeout(Duration::from_secs(20)).expect("it waits for itself");
}

/// Through helper rings, where the kernel has them; each piece moves the bytes that the CPU sees.
#[cfg(feature = "io-uring")]
#[test]
fn pieces_on_a_ring_move_the_right_bytes() {
    use pindown::provider::io_uring::{Mover, UringProvider};
    const LEN: usize = (128 << 20) + 5 * PAGE_SIZE;
    if !support::is_memlock_at_least(2 * LEN as u64) {
        return println!("skipped: RLIMIT_MEMLOCK is too low for {LEN} bytes (ulimit -l)");
    }
    let map = support::Map::filled(LEN / PAGE_SIZE, b'x');
    let Ok(mut mover) = Mover::new(1, 1 << 20) else { return println!("skipped: no io_uring here") };
    let provider = UringProvider::new(mover.ring()).unwrap();
    let cache = Builder::new(provider).monitor(MonitorChoice::Manual).max_bytes(u64::MAX).build().unwrap();
    let queue = Queue::new(&cache).unwrap();
    // SAFETY: the device only reads, and nothing writes meanwhile.
    unsafe { queue.submit_large(map.ptr(), LEN, Access::READ, 1, |_| {}) }.unwrap();
    let completion = queue.wait(Duration::from_secs(60)).unwrap();
    let Ok(Done::Segments(segments)) = completion.result else { panic!("{completion:?}") };
    assert_eq!((segments.count(), segments.len_bytes()), (3, LEN));
    for segment in &segments {
        // Either end of each, with its own bytes.
        for at in [segment.addr(), segment.addr().wrapping_add(segment.len_bytes() - PAGE_SIZE)] {
            let bytes: Vec<u8> = (0..PAGE_SIZE).map(|i| (i ^ (at.addr() >> 12)) as u8).collect();
            // SAFETY: the test's mapping, to which nothing refers.
            unsafe { at.cast_mut().copy_from_nonoverlapping(bytes.as_ptr(), PAGE_SIZE) };
            assert_eq!(mover.write_fixed(segment.key(), at, PAGE_SIZE).unwrap(), bytes);
        }
    }
}
