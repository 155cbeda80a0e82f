//! WRITE_FIXED from an ordinary `Vec` that moves and shrinks as it likes.
//!
//! `cargo run --example plain_ring`

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use io_uring::{IoUring, types};
use pindown::provider::io_uring::UringProvider;
use pindown::{Access, Builder, Cache};

type Error = Box<dyn std::error::Error>;

/// Writes all of `data` to the start of `file`, from a fixed buffer.
fn write_fixed(
    ring: &mut IoUring,
    cache: &Cache<UringProvider>,
    file: &File,
    data: &[u8],
) -> Result<(), Error> {
    // SAFETY: the device only reads `data`, which is borrowed until the request is done.
    let registration = unsafe { cache.acquire(data.as_ptr(), data.len(), Access::READ) }?;
    let fd = types::Fd(file.as_raw_fd());
    let write = registration.key().write_fixed(fd, data.as_ptr(), data.len())?.build();
    // SAFETY: `data` and `file` outlive the request, which is waited for below.
    unsafe { ring.submission().push(&write) }?;
    ring.submit_and_wait(1)?;
    let result = ring.completion().next().ok_or("no completion")?.result();
    drop(registration); // only now: a registration is held until the completion
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result).into());
    }
    assert_eq!(result as usize, data.len(), "the file is on a full disk");
    Ok(())
}

pub(crate) fn main() -> Result<(), Error> {
    let mut ring = IoUring::new(8)?;
    let cache = Builder::new(UringProvider::new(&ring)?).build()?;
    let path = std::env::temp_dir().join(format!("plain_ring-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;

    let mut data = vec![0u8; 1 << 20];
    for round in 0..100u8 {
        // Now and then the memory moves or is given back: the cache must not use the old registration.
        match round % 10 {
            3 => data = vec![0; 1 << 20],
            6 => data.shrink_to(data.len() / 2),
            _ => data.resize(1 << 20, 0),
        }
        data.fill(round);
        write_fixed(&mut ring, &cache, &file, &data)?;
        let mut written = vec![0; data.len()];
        file.read_exact_at(&mut written, 0)?;
        assert_eq!(written, data, "stale bytes in round {round}");
    }

    let stats = cache.stats();
    println!("monitor {}: {} requests, {} hits", cache.monitor().name(), stats.gets, stats.hits);
    Ok(())
}
