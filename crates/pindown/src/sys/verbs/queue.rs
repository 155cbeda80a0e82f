//! [`Cq`] and [`Qp`]: completion queues and reliable-connected queue pairs.

use std::io;
use std::mem::zeroed;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use pindown_core::Access;

use super::bindings::*;
use super::library::check;
use super::memory::Pd;

/// A piece of registered memory, as a work request names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) len_bytes: u32,
    pub(crate) lkey: u32,
}

impl Sge {
    pub(crate) fn raw(self) -> ibv_sge {
        ibv_sge { addr: self.addr, length: self.len_bytes, lkey: self.lkey }
    }
}

/// What to do with it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Write { remote_addr: u64, rkey: u32 },
    Read { remote_addr: u64, rkey: u32 },
    Send,
}

/// One work completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completed {
    pub(crate) id: u64,
    pub(crate) status: u32,
    pub(crate) byte_len: u32,
}

/// A completion queue. Destroyed on drop, unless lent.
#[derive(Debug)]
pub(crate) struct Cq {
    raw: NonNull<ibv_cq>,
    pd: Arc<Pd>,
    lent: bool,
}

// SAFETY: poll_cq takes the queue's own lock; the pointer is not replaced.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

impl Cq {
    pub(crate) fn new(pd: &Arc<Pd>, entries: i32) -> io::Result<Self> {
        let ctx = pd.context();
        // SAFETY: the context is open; no channel and no cookie are given.
        let raw = unsafe { (ctx.lib().create_cq)(ctx.raw(), entries, null_mut(), null_mut(), 0) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw, pd: pd.clone(), lent: false })
    }

    /// The application's own.
    ///
    /// # Safety
    ///
    /// A live queue of the domain's context, which outlives this and what is made on it.
    pub(crate) unsafe fn lent(pd: &Arc<Pd>, raw: NonNull<ibv_cq>) -> Self {
        Self { raw, pd: pd.clone(), lent: true }
    }

    pub(crate) fn raw(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }

    /// The next completion, if there is one.
    pub(crate) fn poll(&self) -> io::Result<Option<Completed>> {
        // SAFETY: all-zero is a value of this plain struct.
        let mut wc: ibv_wc = unsafe { zeroed() };
        // SAFETY: the context is open and outlives the queue; room for one is given.
        let got = unsafe {
            let poll = (*self.pd.context().raw()).ops.poll_cq.ok_or_else(unsupported)?;
            poll(self.raw.as_ptr(), 1, &mut wc)
        };
        if got < 0 {
            return Err(io::Error::from_raw_os_error(if got == -1 { libc::EIO } else { -got }));
        }
        Ok((got > 0).then_some(Completed { id: wc.wr_id, status: wc.status, byte_len: wc.byte_len }))
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if self.lent {
            return;
        }
        // SAFETY: made by this; queue pairs on it hold an Arc of it, so are gone.
        unsafe { (self.pd.context().lib().destroy_cq)(self.raw.as_ptr()) };
    }
}

/// How to reach the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathParams {
    pub(crate) port: u8,
    pub(crate) gid_index: u8,
    pub(crate) mtu: u32,
    pub(crate) rd_atomic: u8,
    pub(crate) peer_qp: u32,
    pub(crate) peer_psn: u32,
    pub(crate) peer_lid: u16,
    pub(crate) peer_gid: Option<[u8; 16]>,
}

/// A reliable-connected queue pair. Destroyed on drop.
#[derive(Debug)]
pub(crate) struct Qp {
    raw: NonNull<ibv_qp>,
    cq: Arc<Cq>,
}

// SAFETY: posting takes the queue's own locks; the pointer is not replaced.
unsafe impl Send for Qp {}
// SAFETY: as above.
unsafe impl Sync for Qp {}

impl Qp {
    /// A pair on `cq` with room for `depth` requests each way.
    pub(crate) fn new(cq: &Arc<Cq>, depth: u32) -> io::Result<Self> {
        // SAFETY: all-zero is a value of this plain struct.
        let mut attr: ibv_qp_init_attr = unsafe { zeroed() };
        (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq.raw.as_ptr(), cq.raw.as_ptr(), IBV_QPT_RC);
        attr.cap.max_send_wr = depth;
        attr.cap.max_recv_wr = depth;
        attr.cap.max_send_sge = 1;
        attr.cap.max_recv_sge = 1;
        // SAFETY: live domain and completion queue; the struct outlives the call.
        let raw = unsafe { (cq.pd.context().lib().create_qp)(cq.pd.raw(), &mut attr) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw, cq: cq.clone() })
    }

    pub(crate) fn raw(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }

    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.cq.pd
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: it is live.
        unsafe { self.raw.as_ref() }.qp_num
    }

    /// RESET to INIT: the peer may do what `access` allows, region by region.
    pub(crate) fn to_init(&self, port: u8, access: Access) -> io::Result<()> {
        let mut attr = blank();
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = port;
        attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE;
        for (right, flag) in [
            (Access::REMOTE_READ, IBV_ACCESS_REMOTE_READ),
            (Access::REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE),
            (Access::REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC),
        ] {
            attr.qp_access_flags |= if access.contains(right) { flag } else { 0 };
        }
        self.modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
    }

    /// INIT to RTR to RTS (`ibv_modify_qp(3)`); the values that matter to no one are those of
    /// rdma-core's own ibv_rc_pingpong. The acknowledge timeout is longer (4.096 us * 2^18, 1 s): a
    /// request that is sent again although it arrived finds its region deregistered, and soft-RoCE
    /// then takes that for an access violation and ends the connection.
    pub(crate) fn to_ready(&self, path: &PathParams, own_psn: u32) -> io::Result<()> {
        self.to_rtr(path)?;
        let mut attr = blank();
        attr.qp_state = IBV_QPS_RTS;
        (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (18, 7, 7);
        attr.sq_psn = own_psn;
        attr.max_rd_atomic = path.rd_atomic;
        let mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN;
        self.modify(attr, mask | IBV_QP_MAX_QP_RD_ATOMIC)
    }

    fn to_rtr(&self, path: &PathParams) -> io::Result<()> {
        let mut attr = blank();
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = path.mtu;
        (attr.dest_qp_num, attr.rq_psn) = (path.peer_qp, path.peer_psn);
        attr.max_dest_rd_atomic = path.rd_atomic;
        attr.min_rnr_timer = 12;
        attr.ah_attr.port_num = path.port;
        attr.ah_attr.dlid = path.peer_lid;
        if let Some(gid) = path.peer_gid {
            attr.ah_attr.is_global = 1;
            attr.ah_attr.grh.dgid = ibv_gid { raw: gid };
            attr.ah_attr.grh.sgid_index = path.gid_index;
            attr.ah_attr.grh.hop_limit = 64;
        }
        let mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        self.modify(attr, mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
    }

    fn modify(&self, mut attr: ibv_qp_attr, mask: u32) -> io::Result<()> {
        let lib = self.pd().context().lib();
        // SAFETY: a live queue pair; the struct outlives the call.
        check(unsafe { (lib.modify_qp)(self.raw(), &mut attr, mask as i32) })
    }

    /// Posts one signalled request.
    ///
    /// # Safety
    ///
    /// The memory that `sge` names stays registered, and free of Rust references as far as the
    /// device writes it, until the completion.
    pub(crate) unsafe fn post(&self, id: u64, work: Work, sge: Sge) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.post_list(id, work, Some(sge)) }
    }

    /// Posts an RDMA WRITE of no bytes, signalled: it names no memory, and so has no rkey to check (`ib_spec`
    /// C9-88, rxe_resp.c `check_rkey()`), and takes no receive of the peer's.
    pub(crate) fn post_empty(&self, id: u64) -> io::Result<()> {
        // SAFETY: no memory is named.
        unsafe { self.post_list(id, Work::Write { remote_addr: 0, rkey: 0 }, None) }
    }

    unsafe fn post_list(&self, id: u64, work: Work, sge: Option<Sge>) -> io::Result<()> {
        let mut list = sge.map(Sge::raw);
        // SAFETY: all-zero is a value of this plain struct.
        let mut wr: ibv_send_wr = unsafe { zeroed() };
        (wr.wr_id, wr.num_sge, wr.send_flags) = (id, i32::from(list.is_some()), IBV_SEND_SIGNALED);
        wr.sg_list = list.as_mut().map_or(null_mut(), |list| list);
        match work {
            Work::Send => wr.opcode = IBV_WR_SEND,
            Work::Write { remote_addr, rkey } => {
                (wr.opcode, wr.remote_addr, wr.rkey) = (IBV_WR_RDMA_WRITE, remote_addr, rkey);
            }
            Work::Read { remote_addr, rkey } => {
                (wr.opcode, wr.remote_addr, wr.rkey) = (IBV_WR_RDMA_READ, remote_addr, rkey);
            }
        }
        let mut bad = null_mut();
        // SAFETY: a live queue pair; the request and its list are copied by the call.
        check(unsafe {
            let post = (*self.pd().context().raw()).ops.post_send.ok_or_else(unsupported)?;
            post(self.raw(), &mut wr, &mut bad)
        })
    }

    /// Posts one receive.
    ///
    /// # Safety
    ///
    /// As [`post`](Self::post).
    pub(crate) unsafe fn post_receive(&self, id: u64, sge: Sge) -> io::Result<()> {
        let mut list = sge.raw();
        let mut wr = ibv_recv_wr { wr_id: id, next: null_mut(), sg_list: &mut list, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: a live queue pair; the request and its list are copied by the call.
        check(unsafe {
            let post = (*self.pd().context().raw()).ops.post_recv.ok_or_else(unsupported)?;
            post(self.raw(), &mut wr, &mut bad)
        })
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: made by this, used by nobody else.
        unsafe { (self.pd().context().lib().destroy_qp)(self.raw()) };
    }
}

fn blank() -> ibv_qp_attr {
    // SAFETY: all-zero is a value of this plain struct.
    unsafe { zeroed() }
}

fn unsupported() -> io::Error {
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}
