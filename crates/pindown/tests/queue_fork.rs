//! A forked child and its parent's queue: nothing hangs, nothing leaks over.

mod support;

use std::time::Duration;

use pindown::provider::sim::{Sim, SimConfig};
use pindown::queue::{Queue, QueueError, SubmitError, Submitted};
use pindown::{Access, AcquireError, Builder, MonitorChoice, PAGE_SIZE};
use support::child::reap_within;
use support::in_own_process;

fn at(page: usize) -> *const u8 {
    std::ptr::without_provenance(0x2000_0000 + page * PAGE_SIZE)
}

fn submit(queue: &Queue<Sim>, page: usize) -> Result<pindown::queue::Submission<Sim>, SubmitError> {
    // SAFETY: the simulated device touches no memory.
    unsafe { queue.submit(at(page), PAGE_SIZE, Access::READ, page as u64) }
}

#[test]
fn a_child_is_told_and_its_parent_undisturbed() {
    in_own_process("a_child_is_told_and_its_parent_undisturbed", || {
        let mut config = SimConfig::default();
        config.register_latency = Duration::from_millis(20);
        let cache = Builder::new(Sim::with(config))
            .monitor(MonitorChoice::Manual)
            .sweep(false)
            .widen(false)
            .build()
            .unwrap();
        let queue = Queue::<Sim>::builder().threads(2).build(&cache).unwrap();
        for page in 0..20 {
            assert!(matches!(submit(&queue, page), Ok(Submitted::Pending(_))));
        }
        std::thread::sleep(Duration::from_millis(50)); // some done and not polled, some running
        // SAFETY: as the body says: the child uses the queue, which promises that this does not hang.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| in_child(queue))).is_ok();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!fine)) }
        }
        let status = reap_within(child, Duration::from_secs(10)).and_then(|status| status.code());
        assert_eq!(status, Some(0));
        for _ in 0..20 {
            let completion = queue.wait(Duration::from_secs(10)).expect("each completes in the parent");
            assert!(completion.result.is_ok());
        }
        assert!(queue.poll().is_none() && queue.outstanding() == 0);
    });
}

fn in_child(queue: Queue<Sim>) {
    assert!(matches!(submit(&queue, 1), Err(SubmitError::Forked)));
    assert!(queue.poll().is_none() && queue.wait(Duration::MAX).is_none());
    assert_eq!(queue.drive(), 0);
    let waker = std::task::Waker::noop();
    // SAFETY: as in `submit`.
    let future = std::pin::pin!(unsafe { queue.acquire(at(99), PAGE_SIZE, Access::READ) });
    let polled = future.poll(&mut std::task::Context::from_waker(waker));
    let std::task::Poll::Ready(Err(error)) = polled else { panic!("{polled:?}") };
    assert!(matches!(
        error,
        QueueError::Submit(SubmitError::Forked) | QueueError::Acquire(AcquireError::Forked)
    ));
    queue.close();
    drop(queue);
}
