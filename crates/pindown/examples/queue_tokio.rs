//! Registration awaited in tokio tasks; any other runtime works as well, and no feature is needed.
//!
//! `cargo run --example queue_tokio`

use std::sync::Arc;

use io_uring::IoUring;
use pindown::provider::io_uring::UringProvider;
use pindown::queue::Queue;
use pindown::{Access, Builder, Cache};

type Error = Box<dyn std::error::Error + Send + Sync>;

async fn register_one(queue: Arc<Queue<UringProvider>>, n: usize) -> Result<usize, Error> {
    let buffer = vec![n as u8; 64 << 10];
    // SAFETY: the device would only read, and the buffer outlives its registration: it is dropped after it.
    let registration = unsafe { queue.acquire(buffer.as_ptr(), buffer.len(), Access::READ) }.await?;
    assert!(
        registration.range().contains(pindown::PageRange::covering(buffer.as_ptr().addr(), buffer.len())?)
    );
    Ok(registration.range().len_bytes())
}

async fn register_many(cache: &Cache<UringProvider>) -> Result<(), Error> {
    let queue = Arc::new(Queue::new(cache)?);
    let tasks: Vec<_> = (0..32).map(|n| tokio::spawn(register_one(queue.clone(), n))).collect();
    for task in tasks {
        println!("{} bytes registered", task.await??);
    }
    // A future that is given up leaves nothing behind.
    let buffer = vec![1u8; 1 << 20];
    // SAFETY: as above; the queue puts what it still registers.
    let future = unsafe { queue.acquire(buffer.as_ptr(), buffer.len(), Access::READ) };
    let _ = tokio::time::timeout(std::time::Duration::from_micros(1), future).await;
    queue.close();
    assert_eq!(queue.outstanding(), 0);
    Ok(())
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ring = IoUring::new(8)?;
    let cache = Builder::new(UringProvider::new(&ring)?).build()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(register_many(&cache)).map_err(|e| e.to_string())?;
    Ok(())
}
