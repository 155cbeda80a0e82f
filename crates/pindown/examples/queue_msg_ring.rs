//! Registration in an io_uring loop: completions of the queue arrive in the ring, beside its own.
//!
//! `cargo run --example queue_msg_ring`

use std::fs::File;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};
use pindown::provider::io_uring::UringProvider;
use pindown::queue::{Done, MsgRing, Queue, Submission};
use pindown::{Access, Builder, Registration};

type Error = Box<dyn std::error::Error>;

const REGISTERED: u64 = 1;
const WRITTEN: u64 = 2;

/// Writes a registered buffer; its completion says `WRITTEN`.
fn post(
    ring: &mut IoUring,
    file: &File,
    data: &[u8],
    held: &Registration<UringProvider>,
) -> Result<(), Error> {
    let (fd, len) = (types::Fd(file.as_raw_fd()), data.len() as u32);
    let write = opcode::WriteFixed::new(fd, data.as_ptr(), len, held.key().buf_index()).build();
    // SAFETY: `data`, `file` and the registration are kept until the completion.
    unsafe { ring.submission().push(&write.user_data(WRITTEN)) }?;
    Ok(())
}

pub(crate) fn main() -> Result<(), Error> {
    let mut ring = IoUring::new(8)?;
    let cache = Builder::new(UringProvider::new(&ring)?).build()?;
    let queue = Queue::<UringProvider>::builder().announce(MsgRing::new(&ring)?).build(&cache)?;
    let (data, file) = (vec![7u8; 1 << 20], File::create("/dev/null")?);

    let mut held = None;
    // SAFETY: the device only reads `data`, which outlives the transfer.
    match unsafe { queue.submit(data.as_ptr(), data.len(), Access::READ, REGISTERED) }? {
        Submission::Hit(hit) => post(&mut ring, &file, &data, held.insert(hit))?,
        Submission::Pending(_) => {} // the loop goes on with other things
    }
    loop {
        ring.submit_and_wait(1)?;
        let entries: Vec<_> = ring.completion().map(|e| (e.user_data(), e.result())).collect();
        for (what, result) in entries {
            if what == WRITTEN {
                assert_eq!(result, 1 << 20);
                return Ok(());
            }
            let completion = queue.poll().ok_or("it was announced")?;
            let Done::Registered(registration) = completion.result? else { continue };
            post(&mut ring, &file, &data, held.insert(registration))?;
        }
    }
}
