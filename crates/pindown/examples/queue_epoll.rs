//! Registration in an epoll loop: submit, go on, and be told when it is done.
//!
//! `cargo run --example queue_epoll`

use std::os::fd::{AsFd, AsRawFd};

use io_uring::IoUring;
use pindown::provider::io_uring::UringProvider;
use pindown::queue::{Done, Queue, Submission};
use pindown::{Access, Builder};

type Error = Box<dyn std::error::Error>;

fn check(result: libc::c_int) -> Result<libc::c_int, Error> {
    if result < 0 { Err(std::io::Error::last_os_error().into()) } else { Ok(result) }
}

pub(crate) fn main() -> Result<(), Error> {
    let ring = IoUring::new(8)?;
    let cache = Builder::new(UringProvider::new(&ring)?).build()?;
    let queue = Queue::new(&cache)?;

    // SAFETY: plain system calls; the event is live.
    let epoll = unsafe {
        let epoll = check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?;
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 1 };
        check(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, queue.as_fd().as_raw_fd(), &mut event))?;
        epoll
    };

    let buffers: Vec<_> = (0..16u8).map(|n| vec![n; 64 << 10]).collect();
    let mut ready = 0;
    for (n, buffer) in buffers.iter().enumerate() {
        // SAFETY: the device would only read, and the buffers outlive their registrations.
        match unsafe { queue.submit(buffer.as_ptr(), buffer.len(), Access::READ, n as u64) }? {
            Submission::Hit(_registration) => ready += 1, // use it now
            Submission::Pending(_) => {}
        }
    }
    while ready < buffers.len() {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: as above. Other descriptors of the loop would be in the same set.
        check(unsafe { libc::epoll_wait(epoll, &mut event, 1, 10_000) })?;
        while let Some(completion) = queue.poll() {
            let Done::Registered(registration) = completion.result? else { continue };
            println!("buffer {}: {:?}", completion.user_data, registration.key());
            ready += 1;
        }
    }
    // SAFETY: made above, and not used again.
    check(unsafe { libc::close(epoll) })?;
    Ok(())
}
