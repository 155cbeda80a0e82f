//! [`MsgRing`]: completions announced into the application's own io_uring.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use io_uring::{IoUring, opcode, types};

use super::Announce;

/// Posts a completion entry into a ring of the application for each completion: its `user_data` as
/// submitted, and as result 1 for success or 0 for failure. Then [`Queue::poll`](super::Queue::poll) has it.
///
/// IORING_OP_MSG_RING, Linux 5.18. The application's ring needs room in its completion queue; an entry that finds
/// none is counted by [`Queue::unannounced`](super::Queue::unannounced), and the completion can still be polled.
#[derive(Debug)]
pub struct MsgRing {
    target: OwnedFd,
    /// A ring of our own to send from.
    sender: Mutex<Sender>,
}

struct Sender(IoUring);

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sender").field(&self.0.as_raw_fd()).finish()
    }
}

impl MsgRing {
    /// Announces into `ring`, which is kept open.
    ///
    /// # Errors
    ///
    /// When io_uring is not available or the descriptor cannot be duplicated.
    pub fn new(ring: impl AsFd) -> io::Result<Self> {
        let target = ring.as_fd().try_clone_to_owned()?;
        Ok(Self { target, sender: Mutex::new(Sender(IoUring::new(2)?)) })
    }
}

impl Announce for MsgRing {
    fn announce(&self, user_data: u64, ok: bool) -> io::Result<()> {
        let target = types::Fd(self.target.as_raw_fd());
        let entry = opcode::MsgRingData::new(target, i32::from(ok), user_data, None).build();
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        crate::sys::uring_send::send_one(&mut sender.0, &entry)
    }
}
