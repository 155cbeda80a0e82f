//! Registration beside a verbs program's own work: completions of the queue arrive in its completion queue.
//!
//! `cargo run --features verbs --example queue_verbs_cq -- DEVICE`

use std::time::{Duration, Instant};

use pindown::provider::verbs::rc::{CompletionQueue, CqAnnounce, EndpointOptions};
use pindown::provider::verbs::{Options, Verbs};
use pindown::queue::{Done, Queue};
use pindown::{Access, Builder};

type Error = Box<dyn std::error::Error>;

pub(crate) fn on(device: &str) -> Result<(), Error> {
    let cache = Builder::new(Verbs::open(device, Options::default())?).build()?;
    // A program that has an `ibv_cq` already gives it to `CqAnnounce::from_raw`.
    let cq = CompletionQueue::new(cache.provider(), 256)?;
    let announce = CqAnnounce::new(cache.provider(), &cq, 64, &EndpointOptions::default())?;
    let queue = Queue::<Verbs>::builder().depth(64).announce(announce).build(&cache)?;

    let buffers: Vec<_> = (0..8u8).map(|n| vec![n; 1 << 20]).collect();
    for (n, buffer) in buffers.iter().enumerate() {
        // SAFETY: the device would only read, and the buffers outlive their registrations.
        unsafe { queue.submit(buffer.as_ptr(), buffer.len(), Access::READ, 1000 + n as u64) }?;
    }
    let (mut seen, start) = (Vec::new(), Instant::now());
    while seen.len() < buffers.len() {
        // The program's own poll loop: its transfers' completions come here too.
        match cq.poll()? {
            Some((id, status)) => {
                assert_eq!(status, 0);
                let completion = queue.poll().ok_or("it was announced")?;
                let Done::Registered(held) = completion.result? else { continue };
                println!("announced {id}: {} has key {:?}", completion.user_data, held.key());
                seen.push(id);
            }
            None if start.elapsed() > Duration::from_secs(20) => return Err("no announcement".into()),
            None => std::thread::yield_now(),
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (1000..1008).collect::<Vec<_>>());
    Ok(())
}

#[allow(dead_code)] // the test calls `on`
fn main() -> Result<(), Error> {
    on(&std::env::args().nth(1).unwrap_or("rxe0".into()))
}
