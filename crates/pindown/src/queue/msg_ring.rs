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

/// Nothing is waited for: the entry to a ring with `IORING_SETUP_DEFER_TASKRUN` may be posted only when its
/// owner enters the kernel, and the owner may be waiting for this thread. So a refusal may be learned of by a
/// later announcement, which reports it.
struct Sender {
    ring: IoUring,
    refused: Vec<i32>,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sender").field(&self.ring.as_raw_fd()).finish()
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
        Ok(Self { target, sender: Mutex::new(Sender { ring: IoUring::new(64)?, refused: Vec::new() }) })
    }
}

impl Announce for MsgRing {
    fn announce(&self, user_data: u64, ok: bool) -> io::Result<()> {
        let target = types::Fd(self.target.as_raw_fd());
        let entry = opcode::MsgRingData::new(target, i32::from(ok), user_data, None).build();
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let Sender { ring, refused } = &mut *sender;
        crate::sys::uring_send::send(ring, &entry)?;
        refused.extend(ring.completion().map(|c| c.result()).filter(|result| *result < 0));
        refused.pop().map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(-errno)))
    }
}
