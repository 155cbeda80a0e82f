//! [`Mover`]: moves bytes through registered buffers, for tests, measurements and proofs.

use std::sync::Arc;
use std::time::Duration;

use super::endpoint::{Completion, Endpoint, EndpointOptions, RcError, Remote, Request, Segment, failed};
use super::patience::Patience;
use crate::provider::verbs::{Key, Verbs};
use crate::sys::verbs::{Bounce, Pd};

/// A loopback connection with memory of its own, in lanes, at the other end: WRITE and SEND carry
/// bytes from a registered buffer into a lane, READ from a lane into a registered buffer. What
/// arrived can be compared with what the CPU sees.
///
/// The buffer is always the local side, named by its `lkey`, so local access suffices. After an
/// error the connection is made anew. Dropping it ends the requests under way.
#[derive(Debug)]
pub struct Mover {
    // Dropped before the memory that its requests name.
    pair: (Endpoint, Endpoint),
    bounce: Bounce,
    pd: Arc<Pd>,
    options: EndpointOptions,
    /// Which lane a request in flight uses, by its id.
    flights: Vec<(u64, u32)>,
    broken: bool,
    timeout: Duration,
}

impl Mover {
    /// `lanes` lanes of at least `lane_bytes` bytes: as many requests can be under way at a time.
    pub fn new(
        provider: &Verbs,
        options: &EndpointOptions,
        lanes: u32,
        lane_bytes: usize,
    ) -> Result<Self, RcError> {
        let pd = provider.pd().clone();
        let bounce = Bounce::new(&pd, lanes.clamp(1, 32), lane_bytes).map_err(failed("ibv_reg_mr"))?;
        let pair = Endpoint::pair_on(&pd, options)?;
        let timeout = Duration::from_secs(10);
        Ok(Self { pair, bounce, pd, options: *options, flights: Vec::new(), broken: false, timeout })
    }

    /// How many requests can be under way at a time.
    pub fn lanes(&self) -> u32 {
        self.bounce.lanes()
    }

    /// How many requests are under way.
    pub fn under_way(&self) -> usize {
        self.flights.len()
    }

    /// The bytes of a lane with no request under way.
    ///
    /// # Panics
    ///
    /// If it does not exist or has one.
    pub fn lane(&self, lane: u32) -> &[u8] {
        self.bounce.lane(lane)
    }

    /// The bytes of a lane, to fill before [`start_read`](Self::start_read). Panics as
    /// [`lane`](Self::lane).
    pub fn lane_mut(&mut self, lane: u32) -> &mut [u8] {
        self.bounce.lane_mut(lane)
    }

    /// RDMA WRITE of `len_bytes` bytes at `addr` through `key`; waits, and returns what arrived.
    /// Uses lane 0.
    pub fn write(&mut self, key: Key, addr: *const u8, len_bytes: usize) -> Result<&[u8], RcError> {
        self.start_write(0, key, addr, len_bytes)?;
        self.finish_one()?;
        Ok(&self.lane(0)[..len_bytes])
    }

    /// SEND instead of [`write`](Self::write).
    pub fn send(&mut self, key: Key, addr: *const u8, len_bytes: usize) -> Result<&[u8], RcError> {
        self.start_send(0, key, addr, len_bytes)?;
        self.finish_one()?;
        Ok(&self.lane(0)[..len_bytes])
    }

    /// RDMA READ of `data` into memory at `addr` through `key`, and waits. Uses lane 0.
    ///
    /// # Safety
    ///
    /// As [`start_read`](Self::start_read), until this returns.
    pub unsafe fn read(&mut self, key: Key, addr: *mut u8, data: &[u8]) -> Result<(), RcError> {
        let len_bytes = self.fitting(data.len())? as usize;
        self.lane_mut(0)[..len_bytes].copy_from_slice(data);
        // SAFETY: the caller's promise.
        unsafe { self.start_read(0, key, addr, data.len())? };
        self.finish_one()
    }

    /// RDMA READ of the first `len_bytes` bytes of lane 0 into memory at `addr`, and waits.
    ///
    /// # Safety
    ///
    /// As [`start_read`](Self::start_read), until this returns.
    pub unsafe fn read_into(&mut self, key: Key, addr: *mut u8, len_bytes: usize) -> Result<(), RcError> {
        // SAFETY: the caller's promise.
        unsafe { self.start_read(0, key, addr, len_bytes)? };
        self.finish_one()
    }

    /// Posts an RDMA WRITE into `lane`. The memory is only read by the device, from the pages that
    /// the key names; a key that names none fails.
    ///
    /// # Panics
    ///
    /// If the lane does not exist or has a request under way.
    pub fn start_write(
        &mut self,
        lane: u32,
        key: Key,
        addr: *const u8,
        len_bytes: usize,
    ) -> Result<(), RcError> {
        let request = Request::Write(self.remote(lane));
        self.start(lane, request, key, addr.addr(), len_bytes)
    }

    /// Posts a SEND that arrives in `lane`. Sends arrive in the order in which they are posted.
    /// Panics as [`start_write`](Self::start_write).
    pub fn start_send(
        &mut self,
        lane: u32,
        key: Key,
        addr: *const u8,
        len_bytes: usize,
    ) -> Result<(), RcError> {
        let len = self.fitting(len_bytes)?;
        let segment =
            Segment { addr: self.bounce.lane_addr(lane), len_bytes: len, lkey: self.bounce.keys().0 };
        // SAFETY: the lane is made busy right below, and stays so until the send completed, which
        // is after the receive did; a failure ends the connection and with it the receive.
        unsafe { self.pair.1.post(Request::Receive, segment, ())? };
        self.start(lane, Request::Send, key, addr.addr(), len_bytes)
    }

    /// Posts an RDMA READ of the first `len_bytes` bytes of `lane` into memory at `addr`.
    ///
    /// # Safety
    ///
    /// The bytes at `addr` may be overwritten until the completion was seen: nothing refers to
    /// them. The key's registration is held until then.
    ///
    /// # Panics
    ///
    /// As [`start_write`](Self::start_write).
    pub unsafe fn start_read(
        &mut self,
        lane: u32,
        key: Key,
        addr: *mut u8,
        len_bytes: usize,
    ) -> Result<(), RcError> {
        let request = Request::Read(self.remote(lane));
        self.start(lane, request, key, addr.addr(), len_bytes)
    }

    /// Waits until at least `at_least` requests (at most those under way) completed and calls
    /// `done` with the lane and outcome of each.
    pub fn finish(
        &mut self,
        at_least: usize,
        mut done: impl FnMut(u32, Result<(), RcError>),
    ) -> Result<usize, RcError> {
        let wanted = at_least.min(self.flights.len());
        let (mut count, mut patience) = (0, Patience::new(self.timeout));
        loop {
            match self.pair.0.poll()? {
                Some(completion) => count += usize::from(self.retire(completion, &mut done)),
                None if count >= wanted => break,
                None => patience.look_again()?,
            }
        }
        while self.pair.1.poll()?.is_some() {} // receives
        if self.broken && self.flights.is_empty() {
            self.pair = Endpoint::pair_on(&self.pd, &self.options)?;
            self.broken = false;
        }
        Ok(count)
    }

    fn finish_one(&mut self) -> Result<(), RcError> {
        let mut outcome = Ok(());
        self.finish(usize::MAX, |_, result| outcome = result)?;
        outcome
    }

    fn retire(&mut self, completion: Completion, done: &mut impl FnMut(u32, Result<(), RcError>)) -> bool {
        let Some(at) = self.flights.iter().position(|(id, _)| *id == completion.id) else { return false };
        let (_, lane) = self.flights.swap_remove(at);
        self.bounce.set_idle(lane);
        self.broken |= completion.result.is_err();
        done(lane, completion.result.map(drop));
        true
    }

    fn remote(&self, lane: u32) -> Remote {
        Remote { addr: self.bounce.lane_addr(lane) as u64, rkey: self.bounce.keys().1 }
    }

    fn fitting(&self, len_bytes: usize) -> Result<u32, RcError> {
        let fits = len_bytes <= self.bounce.lane_bytes();
        let len = u32::try_from(len_bytes).ok().filter(|_| fits);
        len.ok_or_else(|| failed("fitting the bytes into a lane")(std::io::ErrorKind::InvalidInput.into()))
    }

    fn start(
        &mut self,
        lane: u32,
        request: Request,
        key: Key,
        addr: usize,
        len_bytes: usize,
    ) -> Result<(), RcError> {
        let len_bytes = self.fitting(len_bytes)?;
        self.bounce.set_busy(lane);
        let segment = Segment { addr, len_bytes, lkey: key.lkey };
        // SAFETY: for READ the caller vouches for the memory and the hold; WRITE and SEND only
        // read it, through pages that the device holds or not at all. The lane is busy until the
        // completion was polled.
        match unsafe { self.pair.0.post(request, segment, ()) } {
            Ok(id) => {
                self.flights.push((id, lane));
                Ok(())
            }
            Err(error) => {
                self.bounce.set_idle(lane);
                self.broken = true;
                Err(error)
            }
        }
    }
}
