//! The queue under shuttle: many interleavings of submitters, pollers, cancels and close.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p pindown --lib queue::model`. Locks and threads of the queue are
//! shuttle's; the cache below is the real one, without its worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pindown_core::sim::{Call, Fault, Sim};
use pindown_core::{Access, Config, PAGE_SIZE};

use super::sync::thread;
use super::{Done, Queue, QueueError, Submitted, Ticket};
use crate::cache::Cache;
use crate::monitor::Manual;
use crate::sys::host::LinuxHost;

const ROUNDS: usize = 1000;

fn cache(sim: &Sim) -> Cache<Sim> {
    let (monitor, host) = (Arc::new(Manual::new()), Arc::new(LinuxHost::new()));
    let mut config = Config::default();
    config.widen = false;
    let core = pindown_core::Cache::new(sim.clone(), monitor, host, config).unwrap();
    Cache::new(core, None, Arc::default())
}

fn at(page: usize) -> *const u8 {
    std::ptr::without_provenance(0x4000_0000 + page * PAGE_SIZE)
}

/// Runs `model` on a fresh cache in many interleavings, and checks that nothing stays registered.
fn check(model: impl Fn(&Cache<Sim>) + Send + Sync + 'static) {
    shuttle::check_random(
        move || {
            let sim = Sim::new();
            sim.fail(Call::Register, 2, 1, Fault::Memory);
            let cache = cache(&sim);
            model(&cache);
            cache.begin_close();
            cache.drive();
            drop(cache);
            assert!(sim.books().closed(), "{:?}", sim.books());
        },
        ROUNDS,
    );
}

fn submit(queue: &Queue<Sim>, page: usize) -> Option<Ticket> {
    // SAFETY: the simulated device touches no memory.
    match unsafe { queue.submit(at(page), PAGE_SIZE, Access::READ, page as u64) } {
        Ok(Submitted::Pending(ticket)) => Some(ticket),
        _ => None,
    }
}

/// Polls all there is; at most one completion a submission.
fn drain(queue: &Queue<Sim>, seen: &mut [usize]) -> usize {
    let mut polled = 0;
    while let Some(completion) = queue.poll() {
        seen[completion.user_data as usize] += 1;
        polled += 1;
    }
    polled
}

#[test]
fn submit_cancel_and_close_complete_each_exactly_once() {
    check(|cache| {
        let queue = Arc::new(Queue::<Sim>::builder().depth(3).threads(2).build(cache).unwrap());
        let accepted = Arc::new(AtomicUsize::new(0));
        let submitter = {
            let (queue, accepted) = (queue.clone(), accepted.clone());
            thread::spawn(move || {
                for page in 0..4 {
                    let Some(ticket) = submit(&queue, page) else { continue };
                    accepted.fetch_add(1 << (8 * page), Ordering::Relaxed);
                    if page % 2 == 1 {
                        queue.cancel(ticket);
                    }
                }
            })
        };
        let mut seen = [0; 4];
        drain(&queue, &mut seen);
        queue.close();
        submitter.join().unwrap();
        drain(&queue, &mut seen);
        let accepted = accepted.load(Ordering::Relaxed);
        for (page, seen) in seen.iter().enumerate() {
            assert_eq!(*seen, accepted >> (8 * page) & 0xff, "submission {page}");
        }
        assert_eq!(queue.outstanding(), 0);
    });
}

#[test]
fn a_waiter_is_woken_by_whatever_completes() {
    check(|cache| {
        let queue = Arc::new(Queue::<Sim>::builder().threads(1).build(cache).unwrap());
        let waiter = {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut got = 0;
                while got < 2 {
                    got += usize::from(queue.wait(std::time::Duration::MAX).is_some());
                }
            })
        };
        assert!(submit(&queue, 0).is_some());
        let ticket = submit(&queue, 1).unwrap();
        queue.cancel(ticket);
        waiter.join().unwrap();
        assert_eq!(queue.outstanding(), 0);
    });
}

#[test]
fn pieces_complete_once_with_all_or_the_first_error() {
    check(|cache| {
        let queue = Queue::<Sim>::builder().threads(2).piece_bytes(PAGE_SIZE).build(cache).unwrap();
        // SAFETY: as in `submit`.
        let submitted = unsafe { queue.submit_large(at(0), 4 * PAGE_SIZE, Access::READ, 0, |_| {}) };
        let Ok(Submitted::Pending(ticket)) = submitted else { panic!("{submitted:?}") };
        let cancelled = queue.cancel(ticket);
        queue.close();
        let completion = queue.poll().expect("one");
        match completion.result {
            Ok(Done::Segments(_)) => panic!("the second registration fails, or is cancelled"),
            Ok(_) => panic!("segments or an error"),
            Err(QueueError::Cancelled) => assert!(cancelled),
            Err(_) => {}
        }
        assert!(queue.poll().is_none() && queue.outstanding() == 0);
    });
}

#[test]
fn a_future_dropped_while_it_registers_leaks_nothing() {
    check(|cache| {
        let queue = Queue::<Sim>::builder().depth(2).threads(1).build(cache).unwrap();
        // SAFETY: as in `submit`.
        let future = unsafe { queue.acquire(at(0), PAGE_SIZE, Access::READ) };
        thread::yield_now();
        drop(future);
        queue.close();
        assert_eq!(queue.outstanding(), 0);
    });
}

#[test]
fn a_watch_completes_once_through_cancel_and_close() {
    check(|cache| {
        let queue = Arc::new(Queue::<Sim>::builder().threads(1).build(cache).unwrap());
        // SAFETY: as in `submit`.
        let held = unsafe { cache.acquire(at(0), PAGE_SIZE, Access::READ) }.unwrap();
        let ticket = queue.watch_stale(&held, 7).unwrap();
        let closer = {
            let queue = queue.clone();
            thread::spawn(move || queue.close())
        };
        queue.cancel(ticket);
        closer.join().unwrap();
        assert!(matches!(queue.poll(), Some(c) if c.user_data == 7));
        assert!(queue.poll().is_none() && queue.outstanding() == 0);
    });
}
