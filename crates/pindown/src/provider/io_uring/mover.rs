//! [`Mover`]: moves bytes through registered buffers, for tests, measurements and proofs.

use std::io;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::UringKey;
use crate::sys::lanes::Lanes;
use crate::sys::process::Process;
use crate::sys::uring_queue;

/// A ring with a private memory file at the other end: WRITE_FIXED carries bytes from a registered buffer
/// into one of its lanes, READ_FIXED from a lane into a registered buffer. What arrived can be looked at
/// without a further copy and compared with what the CPU sees.
///
/// ```
/// use pindown::provider::io_uring::{Mover, UringProvider};
/// use pindown::{Access, PageRange, Provider};
///
/// let mut mover = Mover::new(1, 8192)?;
/// let provider = UringProvider::new(mover.ring())?;
/// let data = vec![7u8; 8192];
/// // SAFETY: the buffer is only sent from.
/// let mr = unsafe { provider.register(PageRange::covering(data.as_ptr().addr(), data.len())?, Access::READ) }?;
/// let sent = mover.write_fixed(provider.key(&mr), data.as_ptr(), data.len())?;
/// assert_eq!(sent, data);
/// # provider.deregister(mr).unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping it waits for the requests under way. A forked child shares the ring's queues with its parent, so
/// there every move fails with [`NotConnected`](io::ErrorKind::NotConnected) and dropping waits for nothing.
pub struct Mover {
    ring: IoUring,
    lanes: Lanes,
    /// A lane's request is under way.
    busy: Box<[bool]>,
    under_way: usize,
    process: Process,
}

impl Mover {
    /// A new ring, and `lanes` lanes of `lane_bytes` bytes each: as many requests can be under way at a
    /// time, of at most so many bytes.
    ///
    /// # Errors
    ///
    /// EPERM or ENOSYS where io_uring is forbidden (`kernel.io_uring_disabled`, seccomp), ENOMEM.
    pub fn new(lanes: u32, lane_bytes: usize) -> io::Result<Self> {
        Self::over(IoUring::new(lanes.clamp(1, 1024))?, lanes, lane_bytes)
    }

    /// The same over a ring that the caller has made, with no request of the caller's own under way.
    pub fn over(ring: IoUring, lanes: u32, lane_bytes: usize) -> io::Result<Self> {
        let lanes = Lanes::new(lanes, lane_bytes)?;
        let busy = vec![false; lanes.count() as usize].into();
        Ok(Self { ring, lanes, busy, under_way: 0, process: Process::current() })
    }

    /// The ring, to build a provider on.
    pub fn ring(&self) -> &IoUring {
        &self.ring
    }

    /// How many requests can be under way at a time.
    pub fn lanes(&self) -> u32 {
        self.lanes.count()
    }

    /// How many requests are under way.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Sends `len_bytes` bytes at `addr` through the buffer, waits, and returns what was sent. Uses lane 0.
    ///
    /// # Errors
    ///
    /// EFAULT when the bytes are not in the buffer, or the slot is empty. InvalidInput when they do not fit
    /// a lane.
    pub fn write_fixed(&mut self, key: UringKey, addr: *const u8, len_bytes: usize) -> io::Result<&[u8]> {
        self.start_write(0, key, addr, len_bytes)?;
        self.finish_all(len_bytes)?;
        Ok(&self.lane(0)[..len_bytes])
    }

    /// Receives `data` into memory at `addr` through the buffer, and waits. Uses lane 0.
    ///
    /// # Safety
    ///
    /// As [`start_read`](Self::start_read), until this returns.
    pub unsafe fn read_fixed(&mut self, key: UringKey, addr: *mut u8, data: &[u8]) -> io::Result<()> {
        let lane = self.lane_mut(0);
        lane.get_mut(..data.len()).ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(data);
        // SAFETY: passed on to the caller.
        unsafe { self.start_read(0, key, addr, data.len()) }?;
        self.finish_all(data.len())
    }

    /// Queues a WRITE_FIXED of `len_bytes` bytes at `addr` into `lane`. [`finish`](Self::finish) submits it.
    ///
    /// # Panics
    ///
    /// If the lane does not exist or has a request under way.
    pub fn start_write(
        &mut self,
        lane: u32,
        key: UringKey,
        addr: *const u8,
        len_bytes: usize,
    ) -> io::Result<()> {
        let len = self.claim(lane, len_bytes)?;
        let request = opcode::WriteFixed::new(types::Fd(self.lanes.file()), addr, len, key.buf_index())
            .offset(self.lanes.offset_bytes(lane));
        // SAFETY: the kernel takes the bytes from the pages that it holds pinned for the slot, or fails; it
        // does not follow `addr`. The lane is marked busy until the completion, which `Drop` waits for too.
        unsafe { self.push(lane, request.build()) }
    }

    /// Queues a READ_FIXED of the first `len_bytes` bytes of `lane` into memory at `addr`.
    ///
    /// # Safety
    ///
    /// The bytes at `addr` that the buffer holds may be overwritten until the completion was seen: nothing
    /// refers to them. The key's registration is held until then.
    ///
    /// # Panics
    ///
    /// As [`start_write`](Self::start_write).
    pub unsafe fn start_read(
        &mut self,
        lane: u32,
        key: UringKey,
        addr: *mut u8,
        len_bytes: usize,
    ) -> io::Result<()> {
        let len = self.claim(lane, len_bytes)?;
        let request = opcode::ReadFixed::new(types::Fd(self.lanes.file()), addr, len, key.buf_index())
            .offset(self.lanes.offset_bytes(lane));
        // SAFETY: the caller vouches for the memory; the lane as in `start_write`.
        unsafe { self.push(lane, request.build()) }
    }

    /// Submits what is queued, waits until at least `at_least` requests are done (at most those under way),
    /// and calls `done` with each one's lane and the bytes moved.
    pub fn finish(
        &mut self,
        at_least: usize,
        mut done: impl FnMut(u32, io::Result<usize>),
    ) -> io::Result<usize> {
        let mut count = 0;
        let wanted = at_least.min(self.under_way);
        self.check_process()?;
        loop {
            self.submit_and_wait(wanted - count)?;
            while let Some(cqe) = self.next_completion() {
                let Some(lane) = self.retire(cqe.user_data()) else { continue };
                count += 1;
                done(
                    lane,
                    usize::try_from(cqe.result()).map_err(|_| io::Error::from_raw_os_error(-cqe.result())),
                );
            }
            if count >= wanted {
                return Ok(count);
            }
        }
    }

    /// What lies in a lane: after a write, what was sent.
    ///
    /// # Panics
    ///
    /// If the lane does not exist or has a request under way.
    pub fn lane(&self, lane: u32) -> &[u8] {
        assert!(!self.busy[lane as usize], "lane {lane} is busy");
        // SAFETY: no request of the lane is under way, and one can only be started through `&mut self`.
        unsafe { self.lanes.lane(lane) }
    }

    /// A lane to fill, to be received by a read.
    ///
    /// # Panics
    ///
    /// As [`lane`](Self::lane).
    pub fn lane_mut(&mut self, lane: u32) -> &mut [u8] {
        assert!(!self.busy[lane as usize], "lane {lane} is busy");
        // SAFETY: as in `lane`.
        unsafe { self.lanes.lane_mut(lane) }
    }

    /// Waits for everything, of which the last must have moved `len_bytes` bytes.
    fn finish_all(&mut self, len_bytes: usize) -> io::Result<()> {
        let mut last = Ok(0);
        self.finish(usize::MAX, |_, moved| last = moved)?;
        match last? {
            moved if moved == len_bytes => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn claim(&mut self, lane: u32, len_bytes: usize) -> io::Result<u32> {
        assert!(!self.busy[lane as usize], "lane {lane} is busy");
        let len = u32::try_from(len_bytes).ok().filter(|_| len_bytes <= self.lanes.lane_bytes());
        Ok(len.ok_or(io::ErrorKind::InvalidInput)?)
    }

    /// What a child takes from the queues, its parent never sees.
    fn check_process(&self) -> io::Result<()> {
        let forked = || io::Error::new(io::ErrorKind::NotConnected, "the ring is the parent process's");
        self.process.is_current().then_some(()).ok_or_else(forked)
    }

    /// # Safety
    ///
    /// As [`uring_queue::push`].
    unsafe fn push(&mut self, lane: u32, request: squeue::Entry) -> io::Result<()> {
        self.check_process()?;
        // SAFETY: passed on to the caller.
        unsafe { uring_queue::push(&mut self.ring, &request.user_data(u64::from(lane))) }?;
        self.busy[lane as usize] = true;
        self.under_way += 1;
        Ok(())
    }

    fn submit_and_wait(&self, wanted: usize) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(wanted) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map(drop),
            }
        }
    }

    fn next_completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    /// The lane of a completion; `None` for one that is not ours (a release tag).
    fn retire(&mut self, user_data: u64) -> Option<u32> {
        let lane = u32::try_from(user_data).ok()?;
        let busy = self.busy.get_mut(lane as usize).filter(|busy| **busy)?;
        *busy = false;
        self.under_way -= 1;
        Some(lane)
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        while self.under_way > 0 && self.finish(usize::MAX, |_, _| ()).is_ok() {}
    }
}

impl std::fmt::Debug for Mover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mover")
            .field("lanes", &self.lanes.count())
            .field("under_way", &self.under_way)
            .finish()
    }
}
