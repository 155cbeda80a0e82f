//! The completion queue over the simulated provider, and the kernel's rings.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pindown::provider::sim::{Call, Fault, Sim, SimConfig};
use pindown::queue::{
    Announce, Completion, Done, Queue, QueueError, Request, Submission, SubmitError, Submitted, Ticket,
};
use pindown::{Access, Builder, Cache, MonitorChoice, PAGE_SIZE, PageRange};

const BASE: usize = 0x2000_0000;

fn slow_sim(millis: u64) -> Sim {
    let mut config = SimConfig::default();
    config.register_latency = Duration::from_millis(millis);
    Sim::with(config)
}

fn cache(sim: &Sim) -> Cache<Sim> {
    Builder::new(sim.clone()).monitor(MonitorChoice::Manual).sweep(false).widen(false).build().unwrap()
}

fn at(page: usize) -> *const u8 {
    std::ptr::without_provenance(BASE + page * PAGE_SIZE)
}

fn submit(queue: &Queue<Sim>, page: usize) -> Result<Submission<Sim>, SubmitError> {
    // SAFETY: the simulated device touches no memory.
    unsafe { queue.submit(at(page), PAGE_SIZE, Access::READ, page as u64) }
}

fn next(queue: &Queue<Sim>) -> Completion<Sim> {
    queue.wait(Duration::from_secs(20)).expect("a completion within 20 s")
}

fn is_readable(fd: impl AsFd) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live entry.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

#[test]
fn a_miss_completes_and_a_hit_does_not_wait() {
    let sim = Sim::new();
    let queue = Queue::new(&cache(&sim)).unwrap();
    assert!(matches!(submit(&queue, 3), Ok(Submission::Pending(_))));
    let completion = next(&queue);
    assert_eq!(completion.user_data, 3);
    let Ok(Done::Registered(registration)) = completion.result else { panic!("{completion:?}") };
    let Ok(Submission::Hit(hit)) = submit(&queue, 3) else { panic!("no hit") };
    assert_eq!(hit.key(), registration.key());
    assert_eq!(queue.outstanding(), 0);
}

#[test]
fn the_descriptor_is_readable_exactly_while_completions_wait() {
    let queue = Queue::new(&cache(&Sim::new())).unwrap();
    assert!(!is_readable(&queue));
    for page in 0..3 {
        submit(&queue, page).unwrap();
    }
    while queue.outstanding() < 3 || !is_readable(&queue) {
        std::thread::yield_now();
    }
    for _ in 0..3 {
        next(&queue);
    }
    assert!(!is_readable(&queue));
}

#[test]
fn depth_bounds_what_is_pending_or_not_polled() {
    let cache = cache(&slow_sim(1));
    let queue = Queue::<Sim>::builder().depth(4).build(&cache).unwrap();
    for page in 0..4 {
        submit(&queue, page).unwrap();
    }
    assert!(matches!(submit(&queue, 9), Err(SubmitError::Full { depth: 4 })));
    next(&queue);
    assert!(submit(&queue, 9).is_ok());
}

#[test]
fn a_batch_stops_at_the_first_without_a_place() {
    let cache = cache(&slow_sim(1));
    let queue = Queue::<Sim>::builder().depth(3).build(&cache).unwrap();
    submit(&queue, 2).unwrap();
    drop(next(&queue));
    let request =
        |page| Request { addr: at(page), len: PAGE_SIZE, access: Access::READ, user_data: page as u64 };
    let requests: Vec<_> = (0..9).map(request).collect();
    // SAFETY: as in `submit`.
    let submitted = unsafe { queue.submit_many(&requests) };
    // The third is a hit and takes no place; the fifth finds none.
    let hits: Vec<_> = submitted.iter().map(|s| matches!(s, Submission::Hit(_))).collect();
    assert_eq!(hits, [false, false, true, false]);
    let mut done: Vec<_> = (0..3).map(|_| next(&queue).user_data).collect();
    done.sort_unstable();
    assert_eq!(done, [0, 1, 3]);
    assert_eq!(queue.outstanding(), 0);
}

#[test]
fn cancelled_and_closed_submissions_complete_too() {
    let sim = slow_sim(30);
    let cache = cache(&sim);
    let queue = Queue::<Sim>::builder().threads(1).build(&cache).unwrap();
    submit(&queue, 0).unwrap();
    let Ok(Submission::Pending(ticket)) = submit(&queue, 1) else { panic!() };
    assert!(queue.cancel(ticket) && !queue.cancel(ticket));
    assert!(matches!(next(&queue), Completion { user_data: 1, result: Err(QueueError::Cancelled) }));
    assert!(matches!(next(&queue), Completion { user_data: 0, result: Ok(_) }));
    drop(queue);
    drop(cache);
    wait_until_closed(&sim);
}

fn wait_until_closed(sim: &Sim) {
    for _ in 0..2000 {
        if sim.books().closed() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("left: {:?}", sim.books());
}

#[test]
fn failures_and_panics_complete_with_their_error() {
    let sim = Sim::new();
    sim.fail(Call::Register, 1, 1, Fault::Panic);
    let queue = Queue::new(&cache(&sim)).unwrap();
    submit(&queue, 0).unwrap();
    assert!(matches!(next(&queue).result, Err(QueueError::Panicked)));
    submit(&queue, 0).unwrap();
    assert!(next(&queue).result.is_ok(), "the pool survives");
    // SAFETY: as in `submit`.
    unsafe { queue.submit(at(0), 0, Access::READ, 7) }.unwrap();
    assert!(matches!(next(&queue), Completion { user_data: 7, result: Err(QueueError::Acquire(_)) }));
}

#[test]
fn the_announcement_follows_each_completion() {
    #[derive(Debug)]
    struct Sum(Arc<AtomicU64>);
    impl Announce for Sum {
        fn announce(&self, user_data: u64, ok: bool) -> std::io::Result<()> {
            assert!(ok);
            self.0.fetch_add(user_data, Ordering::SeqCst);
            if user_data == 3 { Err(std::io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        }
    }
    let sum = Arc::new(AtomicU64::new(0));
    let queue = Queue::<Sim>::builder().announce(Sum(sum.clone())).build(&cache(&Sim::new())).unwrap();
    for page in 1..=4 {
        submit(&queue, page).unwrap();
    }
    while sum.load(Ordering::SeqCst) < 10 {
        std::thread::yield_now();
    }
    for _ in 0..4 {
        next(&queue);
    }
    // Counted after the announcement was refused.
    let deadline = Instant::now() + Duration::from_secs(10);
    while queue.unannounced() == 0 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(queue.unannounced(), 1);
}

#[cfg(feature = "io-uring")]
#[test]
fn completions_arrive_in_the_applications_ring() {
    let Ok(mut ring) = io_uring::IoUring::new(8) else { return eprintln!("skipped: no io_uring here") };
    let announce = pindown::queue::MsgRing::new(&ring).unwrap();
    let queue = Queue::<Sim>::builder().announce(announce).build(&cache(&Sim::new())).unwrap();
    submit(&queue, 77).unwrap();
    ring.submit_and_wait(1).unwrap();
    let entry = ring.completion().next().unwrap();
    assert_eq!((entry.user_data(), entry.result()), (77, 1));
    assert_eq!(queue.poll().unwrap().user_data, 77);
}

#[test]
fn futures_resolve_and_leak_nothing_when_dropped() {
    let sim = slow_sim(5);
    let cache = cache(&sim);
    let queue = Queue::new(&cache).unwrap();
    // SAFETY: as in `submit`.
    let future = unsafe { queue.acquire(at(1), PAGE_SIZE, Access::READ) };
    let registration = block_on(future).unwrap();
    for page in 2..20 {
        // SAFETY: as in `submit`.
        drop(unsafe { queue.acquire(at(page), PAGE_SIZE, Access::READ) });
    }
    drop(registration);
    drop(queue);
    drop(cache);
    wait_until_closed(&sim);
}

fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_flush_completes_when_the_device_let_go() {
    let sim = Sim::new();
    let queue = Queue::new(&cache(&sim)).unwrap();
    submit(&queue, 5).unwrap();
    let held = next(&queue);
    let range = PageRange::covering(at(5).addr(), PAGE_SIZE).unwrap();
    queue.flush(range, 1).unwrap();
    assert!(matches!(next(&queue).result, Err(QueueError::Flush(_))), "held");
    drop(held);
    queue.flush(range, 2).unwrap();
    assert!(matches!(next(&queue).result, Ok(Done::Flushed)));
    assert_eq!(sim.books().live, 0);
}

/// Submissions of the next test: a million with PINDOWN_LONG set.
fn submissions() -> usize {
    if std::env::var_os("PINDOWN_LONG").is_some() { 1_000_000 } else { 20_000 }
}

fn random(seed: &mut u64, n: u64) -> usize {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    (*seed % n) as usize
}

/// How often each submission of one queue completed; its index is its user_data.
#[derive(Default)]
struct Seen(Vec<u8>);

impl Seen {
    fn poll(&mut self, completion: Option<Completion<Sim>>) -> bool {
        let Some(completion) = completion else { return false };
        self.0[completion.user_data as usize] += 1;
        true
    }
}

/// Random submissions, failures, panics, changes, cancels and closes: each accepted submission completes
/// exactly once, a refused one never, and nothing stays registered.
#[test]
fn every_submission_completes_exactly_once() {
    quiet_planned_panics();
    let sim = Sim::new();
    sim.fail_every(Call::Register, 7, Fault::Memory);
    let (cache, mut seed, mut submitted) = (cache(&sim), 0x9e37_79b9_u64, 0);
    while submitted < submissions() {
        if random(&mut seed, 4) == 0 {
            sim.fail(Call::Register, 3, 1, Fault::Panic);
        }
        submitted += one_queue(&cache, &mut seed);
    }
    drop(cache);
    wait_until_closed(&sim);
}

fn quiet_planned_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<&str>().copied();
        if !text
            .or(info.payload().downcast_ref::<String>().map(|s| s.as_str()))
            .is_some_and(|t| t.contains("told to panic"))
        {
            before(info);
        }
    }));
}

/// One random submission. `None`: it was a hit, or nothing that completes on the queue.
fn submit_one(queue: &Queue<Sim>, seed: &mut u64, n: u64) -> Result<Option<Ticket>, SubmitError> {
    let page = random(seed, 5000);
    match random(seed, 20) {
        0 | 1 => queue.flush(PageRange::covering(at(page).addr(), 1 << 16).unwrap(), n).map(Some),
        2 => queue.prefetch(at(page), PAGE_SIZE, Access::READ, n).map(Some),
        3 => {
            // SAFETY: as in `submit`.
            let large = unsafe { queue.submit_large(at(page), 3 * PAGE_SIZE, Access::READ, n, |_| {}) };
            large.map(|submitted| match submitted {
                Submitted::Pending(ticket) => Some(ticket),
                Submitted::Hit(_) => None,
            })
        }
        4 => {
            // SAFETY: as in `submit`.
            drop(unsafe { queue.acquire(at(page), PAGE_SIZE, Access::READ) });
            Ok(None)
        }
        // SAFETY: as in `submit`.
        _ => unsafe { queue.submit(at(page), PAGE_SIZE, Access::READ, n) }.map(ticket),
    }
}

/// Returns how many were tried.
fn one_queue(cache: &Cache<Sim>, seed: &mut u64) -> usize {
    let queue = Queue::<Sim>::builder().depth(64).threads(2).piece_bytes(PAGE_SIZE).build(cache).unwrap();
    let (mut seen, mut accepted) = (Seen::default(), Vec::new());
    let tries = 200 + random(seed, 2000);
    for n in 0..tries {
        let submitted = submit_one(&queue, seed, n as u64);
        seen.0.push(0);
        accepted.push(u8::from(matches!(submitted, Ok(Some(_)))));
        match submitted {
            Ok(Some(ticket)) if random(seed, 5) == 0 => drop(queue.cancel(ticket)),
            Err(SubmitError::Full { .. }) => drop(seen.poll(queue.wait(Duration::from_secs(20)))),
            _ => {}
        }
        if random(seed, 9) == 0 {
            cache.invalidate(PageRange::covering(at(random(seed, 5000)).addr(), 1 << 20).unwrap());
        }
    }
    queue.close();
    while seen.poll(queue.poll()) {}
    assert_eq!(seen.0, accepted);
    assert_eq!(queue.outstanding(), 0);
    tries
}

fn ticket(submission: Submission<Sim>) -> Option<Ticket> {
    match submission {
        Submission::Pending(ticket) => Some(ticket),
        Submission::Hit(_) => None,
    }
}
