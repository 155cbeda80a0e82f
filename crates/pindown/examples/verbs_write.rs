//! A cached RDMA WRITE: from a machine with a verbs device to the first transfer.
//!
//! `cargo run --features verbs --example verbs_write -- DEVICE`

use pindown::provider::verbs::rc::{Endpoint, EndpointOptions, Remote, Request, Segment};
use pindown::provider::verbs::{Options, Verbs};
use pindown::{Access, Builder, Stats};
use std::time::Duration;

type Error = Box<dyn std::error::Error>;

pub(crate) fn on(device: &str) -> Result<Stats, Error> {
    let cache = Builder::new(Verbs::open(device, Options::default())?).build()?;
    let (near, _far) = Endpoint::pair(cache.provider(), &EndpointOptions::default())?;
    let (from, mut to) = (vec![7_u8; 1 << 20], vec![0_u8; 1 << 20]);
    for _ in 0..3 {
        // SAFETY: nothing touches `from` or `to` until the WRITE below has completed.
        let source = unsafe { cache.acquire(from.as_ptr(), from.len(), Access::READ)? };
        // SAFETY: as above.
        let target = unsafe { cache.acquire(to.as_mut_ptr(), to.len(), Access::REMOTE_WRITE)? };
        let segment = Segment { addr: from.as_ptr().addr(), len_bytes: 1 << 20, lkey: source.key().lkey };
        let remote = Remote { addr: to.as_mut_ptr().addr() as u64, rkey: target.key().rkey };
        // SAFETY: the endpoint keeps both registrations until the completion.
        unsafe { near.transfer(Request::Write(remote), segment, (source, target), Duration::from_secs(5))? };
        assert_eq!(from, to);
    }
    Ok(cache.stats())
}

#[allow(dead_code)] // the test calls `on`
fn main() -> Result<(), Error> {
    let device = std::env::args().nth(1).unwrap_or("rxe0".into());
    let stats = on(&device)?;
    println!("{device}: {} registrations, {} hits", stats.registrations, stats.hits);
    Ok(())
}
