//! A ring that belongs to one thread (`SINGLE_ISSUER | DEFER_TASKRUN`, Linux 6.1): misses and deregistrations
//! happen on that thread, hits anywhere.
//!
//! `cargo run --example owner_ring`

use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use pindown::provider::io_uring::UringProvider;
use pindown::{Access, AcquireError, Affinity, Builder, Cache};

type Error = Box<dyn std::error::Error>;

/// Sends `data` into `socket`, and does what the cache has due meanwhile.
fn send(
    ring: &mut IoUring,
    cache: &Cache<UringProvider>,
    socket: &UnixStream,
    data: &[u8],
) -> Result<(), Error> {
    // SAFETY: `data` is borrowed until the request is done, and the device only reads it.
    let registration = unsafe { cache.acquire(data.as_ptr(), data.len(), Access::READ) }?;
    let (fd, slot) = (types::Fd(socket.as_raw_fd()), registration.key().buf_index());
    let write = opcode::WriteFixed::new(fd, data.as_ptr(), data.len() as u32, slot).build();
    // SAFETY: `data` and `socket` outlive the request, which is waited for below.
    unsafe { ring.submission().push(&write) }?;
    ring.submit_and_wait(1)?;
    assert_eq!(ring.completion().next().map(|c| c.result()), Some(data.len() as i32));
    drop(registration);
    // An event loop calls this once a turn: nobody else can deregister for this ring.
    cache.drive();
    Ok(())
}

pub(crate) fn main() -> Result<(), Error> {
    let mut settings = IoUring::<squeue::Entry, cqueue::Entry>::builder();
    let mut ring = match settings.setup_single_issuer().setup_defer_taskrun().build(8) {
        Ok(ring) => ring,
        Err(error) => {
            println!("skipped: no such rings here, Linux 6.1 has them ({error})");
            return Ok(());
        }
    };
    let provider = UringProvider::new(&ring)?;
    let cache = Builder::new(provider).build()?;
    assert_eq!(
        pindown::Provider::affinity(cache.provider()),
        Affinity::OwnerThread(std::thread::current().id())
    );
    let (near, mut far) = UnixStream::pair()?;

    let mut data = vec![0u8; 32 << 10];
    let mut arrived = vec![0u8; data.len()];
    for round in 0..50u8 {
        if round % 10 == 5 {
            data = vec![0; data.len()];
        }
        data.fill(round);
        send(&mut ring, &cache, &near, &data)?;
        far.read_exact(&mut arrived)?;
        assert_eq!(arrived, data, "stale bytes in round {round}");
    }

    std::thread::scope(|scope| {
        let elsewhere = scope.spawn(|| {
            let other = vec![0u8; 1 << 20];
            // SAFETY: no request is made with it.
            let miss = unsafe { cache.acquire(other.as_ptr(), other.len(), Access::READ) };
            assert!(matches!(miss, Err(AcquireError::Register(_))), "a miss needs the owner: {miss:?}");
        });
        elsewhere.join().expect("the other thread");
    });
    cache.drive();
    let stats = cache.stats();
    println!("monitor {}: {} requests, {} hits", cache.monitor().name(), stats.gets, stats.hits);
    Ok(())
}
