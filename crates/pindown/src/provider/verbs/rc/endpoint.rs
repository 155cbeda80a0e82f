//! [`Endpoint`]: one reliable-connected queue pair with a completion queue of its own.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pindown_core::Access;

use super::Address;
use super::patience::Patience;
use crate::provider::verbs::Verbs;
use crate::provider::verbs::devices::gids;
use crate::sys::verbs::{self as sys, Completed, Cq, PathParams, Pd, Qp, Sge, Work};

/// Requests that an endpoint may have in flight.
const DEPTH: u32 = 64;

/// How an endpoint is set up.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EndpointOptions {
    /// Port of the device, from 1.
    pub port: u8,
    /// Index into the port's GID table. `None`: a RoCE v2 IPv4 GID, else the first that is set.
    pub gid_index: Option<u8>,
    /// What the peer may do through this connection, within what each region allows.
    pub remote: Access,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self { port: 1, gid_index: None, remote: Access::REMOTE }
    }
}

impl EndpointOptions {
    /// The same with this GID index.
    #[must_use]
    pub fn gid_index(mut self, index: Option<u8>) -> Self {
        self.gid_index = index;
        self
    }
}

/// Registered local memory: the bytes of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// First address.
    pub addr: usize,
    /// Length in bytes.
    pub len_bytes: u32,
    /// The `lkey` of a region that contains it.
    pub lkey: u32,
}

/// Where at the peer.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    /// Address in the peer's address space.
    pub addr: u64,
    /// The `rkey` that the peer gave.
    pub rkey: u32,
}

/// What to do with a segment.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    /// RDMA WRITE: local bytes to the peer's memory.
    Write(Remote),
    /// RDMA READ: the peer's bytes to local memory.
    Read(Remote),
    /// SEND: local bytes to the receive that the peer posted first.
    Send,
    /// Receive: the peer's next SEND comes here.
    Receive,
}

/// Why a transfer, or setting one up, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RcError {
    /// A call failed.
    #[error("{what} failed")]
    Io {
        /// The call.
        what: &'static str,
        /// Its error.
        source: io::Error,
    },
    /// The port has no GID that can be used.
    #[error(
        "port {port} has no GID at index {index:?}: give its network device an address, or choose another with gid_index"
    )]
    NoGid {
        /// The port.
        port: u8,
        /// The index asked for.
        index: Option<u8>,
    },
    /// The work completed with an error; the endpoint accepts no more work and must be made anew.
    #[error("work completed with status {status} ({text}): make a new endpoint")]
    Work {
        /// `enum ibv_wc_status`.
        status: u32,
        /// `ibv_wc_status_str(3)`.
        text: &'static str,
    },
    /// No completion came in time. The work may still run: its memory stays held until the
    /// completion comes or the endpoint is dropped.
    #[error("no completion within {0:?}: the work is still in flight")]
    Timeout(Duration),
    /// The region is not one that windows can be opened on.
    #[error("the region is not registered by this provider with Options::memory_windows")]
    NoWindow,
}

/// One finished request.
#[derive(Debug)]
pub struct Completion {
    /// What [`Endpoint::post`] returned.
    pub id: u64,
    /// Bytes received (receives only), or why it failed.
    pub result: Result<u32, RcError>,
}

type Hold = Box<dyn Any + Send>;

/// A connected queue pair. Thread-safe; completions go to whichever thread polls.
#[derive(Debug)]
pub struct Endpoint {
    // Destroyed first, which ends all work: only then is what it names let go.
    qp: Qp,
    cq: Arc<Cq>,
    in_flight: Mutex<HashMap<u64, Hold>>,
    done: Mutex<VecDeque<Completed>>,
    next_id: AtomicU64,
    own: Address,
    port: u8,
    gid_index: u8,
    ethernet: bool,
}

impl Endpoint {
    /// A queue pair on the provider's protection domain, not connected yet.
    pub fn new(provider: &Verbs, options: &EndpointOptions) -> Result<Self, RcError> {
        Self::on(provider.pd(), options)
    }

    fn on(pd: &Arc<Pd>, options: &EndpointOptions) -> Result<Self, RcError> {
        let attr = pd.context().query().map_err(failed("ibv_query_device_ex"))?;
        let entries = i32::try_from(DEPTH * 2).unwrap_or(128).min(attr.max_cqe);
        let cq = Arc::new(Cq::new(pd, entries).map_err(failed("ibv_create_cq"))?);
        Self::on_cq(pd, options, cq, DEPTH)
    }

    /// One whose completions go to `cq`.
    pub(super) fn on_cq(
        pd: &Arc<Pd>,
        options: &EndpointOptions,
        cq: Arc<Cq>,
        depth: u32,
    ) -> Result<Self, RcError> {
        let context = pd.context();
        let attr = context.query().map_err(failed("ibv_query_device_ex"))?;
        let port = context.query_port(options.port).map_err(failed("ibv_query_port"))?;
        let ethernet = port.link_layer == sys::IBV_LINK_LAYER_ETHERNET;
        let table = gids(context, &context.name(), options.port, &port);
        let found = choose_gid(&table, options.gid_index);
        let (gid_index, gid) = match found {
            None if ethernet || options.gid_index.is_some() => {
                return Err(RcError::NoGid { port: options.port, index: options.gid_index });
            }
            other => other.unwrap_or((0, [0; 16])),
        };
        let qp = Qp::new(&cq, depth).map_err(failed("ibv_create_qp"))?;
        qp.to_init(options.port, options.remote).map_err(failed("ibv_modify_qp to INIT"))?;
        let own = Address {
            qp_number: qp.number(),
            psn: RandomState::new().hash_one(qp.number()) as u32 & 0xff_ffff,
            lid: port.lid,
            mtu: port.active_mtu as u8,
            rd_atomic: attr.max_qp_rd_atom.clamp(1, 16),
            gid,
        };
        let (in_flight, done) = (Mutex::default(), Mutex::default());
        let next_id = AtomicU64::new(1);
        Ok(Self { qp, cq, in_flight, done, next_id, own, port: options.port, gid_index, ethernet })
    }

    /// Two endpoints of one provider, connected to each other through the device.
    pub fn pair(provider: &Verbs, options: &EndpointOptions) -> Result<(Self, Self), RcError> {
        Self::pair_on(provider.pd(), options)
    }

    pub(super) fn pair_on(pd: &Arc<Pd>, options: &EndpointOptions) -> Result<(Self, Self), RcError> {
        let (a, b) = (Self::on(pd, options)?, Self::on(pd, options)?);
        a.connect(&b.address())?;
        b.connect(&a.address())?;
        Ok((a, b))
    }

    /// What the peer's [`connect`](Self::connect) needs.
    pub fn address(&self) -> Address {
        self.own
    }

    /// Connects to the endpoint with this address, which connects to this one likewise. The path
    /// MTU is the smaller of the two ports'.
    pub fn connect(&self, peer: &Address) -> Result<(), RcError> {
        let global = self.ethernet || peer.lid == 0;
        let path = PathParams {
            port: self.port,
            gid_index: self.gid_index,
            mtu: u32::from(self.own.mtu.min(peer.mtu)),
            rd_atomic: self.own.rd_atomic.min(peer.rd_atomic),
            peer_qp: peer.qp_number,
            peer_psn: peer.psn,
            peer_lid: peer.lid,
            peer_gid: global.then_some(peer.gid),
        };
        self.qp.to_ready(&path, self.own.psn).map_err(failed("ibv_modify_qp to RTS"))
    }

    /// Posts one request and keeps `hold` (registrations, usually) until its completion was
    /// polled, or the endpoint is gone. Returns the completion's id.
    ///
    /// # Safety
    ///
    /// `hold` keeps the segment registered under its key (where the key is wrong, the work merely
    /// fails). Until the completion, memory that the device reads is not written, and memory that
    /// it writes is neither read nor written, through Rust references.
    pub unsafe fn post(
        &self,
        request: Request,
        segment: Segment,
        hold: impl Any + Send,
    ) -> Result<u64, RcError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.flights().insert(id, Box::new(hold));
        // SAFETY: the caller's promise; the hold outlives the completion.
        let posted = unsafe { self.post_unheld(id, request, segment) };
        posted.inspect_err(|_| drop(self.flights().remove(&id))).map(|()| id)
    }

    unsafe fn post_unheld(&self, id: u64, request: Request, segment: Segment) -> Result<(), RcError> {
        let sge = Sge { addr: segment.addr as u64, len_bytes: segment.len_bytes, lkey: segment.lkey };
        let work = match request {
            Request::Write(at) => Work::Write { remote_addr: at.addr, rkey: at.rkey },
            Request::Read(at) => Work::Read { remote_addr: at.addr, rkey: at.rkey },
            Request::Send => Work::Send,
            Request::Receive => {
                // SAFETY: the caller's promise.
                return unsafe { self.qp.post_receive(id, sge) }.map_err(failed("ibv_post_recv"));
            }
        };
        // SAFETY: the caller's promise.
        unsafe { self.qp.post(id, work, sge) }.map_err(failed("ibv_post_send"))
    }

    /// The next completion, if there is one; lets go of what its request held.
    pub fn poll(&self) -> Result<Option<Completion>, RcError> {
        let queued = self.done().pop_front();
        let next = match queued {
            Some(done) => Some(done),
            None => self.cq.poll().map_err(failed("ibv_poll_cq"))?,
        };
        Ok(next.map(|done| self.finish(done)))
    }

    /// The next completion, waiting up to `timeout`: time in which this thread could look, so that of
    /// a machine that was stopped meanwhile does not count.
    pub fn wait(&self, timeout: Duration) -> Result<Completion, RcError> {
        patiently(timeout, || self.poll())
    }

    /// The completion of `id`, waiting as [`wait`](Self::wait) does; those of other requests are kept for
    /// [`poll`](Self::poll).
    pub fn wait_for(&self, id: u64, timeout: Duration) -> Result<u32, RcError> {
        patiently(timeout, || self.look_for(id))?.result
    }

    /// Posts one request and waits for its completion. After [`RcError::Timeout`] it is still in
    /// flight, and `hold` with it.
    ///
    /// # Safety
    ///
    /// As [`post`](Self::post).
    pub unsafe fn transfer(
        &self,
        request: Request,
        segment: Segment,
        hold: impl Any + Send,
        timeout: Duration,
    ) -> Result<u32, RcError> {
        // SAFETY: the caller's promise.
        let id = unsafe { self.post(request, segment, hold)? };
        self.wait_for(id, timeout)
    }

    /// Requests posted whose completion was not polled yet.
    pub fn in_flight(&self) -> usize {
        self.flights().len()
    }

    /// Its two ends, one of which completes into `cq`.
    pub(super) fn pair_with(
        pd: &Arc<Pd>,
        options: &EndpointOptions,
        cq: Arc<Cq>,
        depth: u32,
    ) -> Result<(Self, Self), RcError> {
        let (near, far) = (Self::on_cq(pd, options, cq, depth)?, Self::on(pd, options)?);
        near.connect(&far.address())?;
        far.connect(&near.address())?;
        Ok((near, far))
    }

    pub(super) fn qp(&self) -> &Qp {
        &self.qp
    }

    /// An id for work that is not posted through [`post`](Self::post).
    pub(super) fn reserve_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    fn look_for(&self, id: u64) -> Result<Option<Completion>, RcError> {
        let mut queued = self.done();
        if let Some(at) = queued.iter().position(|done| done.id == id) {
            let done = queued.remove(at);
            drop(queued);
            return Ok(done.map(|done| self.finish(done)));
        }
        match self.cq.poll().map_err(failed("ibv_poll_cq"))? {
            Some(done) if done.id == id => {
                drop(queued);
                Ok(Some(self.finish(done)))
            }
            other => {
                queued.extend(other);
                Ok(None)
            }
        }
    }

    fn finish(&self, done: Completed) -> Completion {
        let hold = self.flights().remove(&done.id);
        drop(hold); // outside the lock: a put may take a while
        let result = match done.status {
            sys::IBV_WC_SUCCESS => Ok(done.byte_len),
            status => Err(RcError::Work { status, text: self.qp.pd().context().lib().status_text(status) }),
        };
        Completion { id: done.id, result }
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<u64, Hold>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self) -> MutexGuard<'_, VecDeque<Completed>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn failed(what: &'static str) -> impl Fn(io::Error) -> RcError {
    move |source| RcError::Io { what, source }
}

fn patiently<T>(timeout: Duration, look: impl Fn() -> Result<Option<T>, RcError>) -> Result<T, RcError> {
    let mut patience = Patience::new(timeout);
    loop {
        match look()? {
            Some(found) => return Ok(found),
            None => patience.look_again()?,
        }
    }
}

/// RoCE v2 over IPv4 is what routes and firewalls know; failing that, the first that is set.
fn choose_gid(table: &[(u8, [u8; 16], String)], asked: Option<u8>) -> Option<(u8, [u8; 16])> {
    let is_v4 = |gid: &[u8; 16]| gid[..10] == [0; 10] && gid[10..12] == [0xff, 0xff];
    let pick = match asked {
        Some(index) => table.iter().find(|(i, ..)| *i == index),
        None => table
            .iter()
            .find(|(_, gid, kind)| is_v4(gid) && kind == "RoCE v2")
            .or_else(|| table.iter().find(|(_, _, kind)| kind == "RoCE v2"))
            .or_else(|| table.first()),
    };
    pick.map(|(index, gid, _)| (*index, *gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gid_choice_prefers_routable() {
        let mut v4 = [0u8; 16];
        v4[10..].copy_from_slice(&[0xff, 0xff, 10, 9, 0, 1]);
        let mut v6 = [0u8; 16];
        v6[..2].copy_from_slice(&[0xfe, 0x80]);
        let row = |i, gid, kind: &str| (i, gid, kind.to_owned());
        let table = [
            row(0, v6, "IB/RoCE v1"),
            row(1, v6, "RoCE v2"),
            row(2, v4, "IB/RoCE v1"),
            row(3, v4, "RoCE v2"),
        ];
        assert_eq!(choose_gid(&table, None).unwrap().0, 3);
        assert_eq!(choose_gid(&table[..3], None).unwrap().0, 1);
        assert_eq!(choose_gid(&table[..1], None).unwrap().0, 0);
        assert_eq!(choose_gid(&table, Some(2)).unwrap().0, 2);
        assert_eq!(choose_gid(&table, Some(9)), None);
    }
}
