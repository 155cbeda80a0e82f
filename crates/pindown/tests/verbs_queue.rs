//! The queue beside a verbs device: its example, and prefetch on one that faults by itself.
#![cfg(feature = "verbs")]

#[path = "../examples/queue_verbs_cq.rs"]
mod queue_verbs_cq;
mod verbs_common;

use std::time::Duration;

use pindown::Access;
use pindown::provider::verbs::{Options, Paging};
use pindown::queue::{Done, Queue};

#[test]
fn completions_arrive_in_the_completion_queue() {
    let device = device_or_skip!();
    queue_verbs_cq::on(&device).unwrap();
}

#[test]
fn a_device_with_on_demand_paging_is_asked_or_says_why_not() {
    let device = device_or_skip!();
    if !verbs_common::has_on_demand(&device) {
        return eprintln!("skipped: {device} has no on-demand paging");
    }
    let mut options = Options::default();
    options.paging = Paging::OnDemand;
    let cache = verbs_common::cache(&device, options);
    let queue = Queue::new(&cache).unwrap();
    let memory = verbs_common::Memory::new(1 << 20);
    // SAFETY: nothing is transferred.
    unsafe { queue.prefetch_then(memory.addr, memory.len, Access::READ_WRITE, 1, |_| {}) }.unwrap();
    let completion = queue.wait(Duration::from_secs(20)).unwrap();
    let Ok(Done::Prefetched(ready, Some(_))) = completion.result else { panic!("{completion:?}") };
    assert_eq!(ready.ready_bytes, 1 << 20);
    match ready.device.expect("it faults by itself") {
        Ok(()) => {}
        // rdma-core's soft-RoCE before 57.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "{error}"),
    }
}
