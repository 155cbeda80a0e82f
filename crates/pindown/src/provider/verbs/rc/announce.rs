//! [`CqAnnounce`]: completions of a [`Queue`](crate::queue::Queue) in a verbs completion queue.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::endpoint::failed;
use super::{Endpoint, EndpointOptions, RcError};
use crate::provider::verbs::Verbs;
use crate::queue::Announce;
use crate::sys::verbs::Cq;

/// A completion queue (`ibv_create_cq(3)`) for programs that have none of their own.
#[derive(Debug)]
pub struct CompletionQueue(Arc<Cq>);

impl CompletionQueue {
    /// With room for `entries`.
    ///
    /// # Errors
    ///
    /// When the device refuses.
    pub fn new(provider: &Verbs, entries: u32) -> Result<Self, RcError> {
        let entries = i32::try_from(entries).unwrap_or(i32::MAX);
        Cq::new(provider.pd(), entries).map(|cq| Self(Arc::new(cq))).map_err(failed("ibv_create_cq"))
    }

    /// The `wr_id` and `status` (0: success) of the next completion, if there is one.
    ///
    /// # Errors
    ///
    /// When `ibv_poll_cq(3)` fails.
    pub fn poll(&self) -> Result<Option<(u64, u32)>, RcError> {
        let done = self.0.poll().map_err(failed("ibv_poll_cq"))?;
        Ok(done.map(|done| (done.id, done.status)))
    }

    /// `struct ibv_cq *`, valid while this lives.
    pub fn as_raw(&self) -> *mut c_void {
        self.0.raw().cast()
    }
}

/// Posts a work completion into the application's completion queue for each completion of a
/// [`Queue`](crate::queue::Queue): its `wr_id` is the `user_data` as submitted, its status success (whether the
/// submission succeeded, [`Queue::poll`](crate::queue::Queue::poll) tells).
///
/// A pair of queue pairs, connected to each other through the device, of which one completes there: each
/// announcement is an RDMA WRITE of no bytes. At most `depth` wait to be polled; more are counted by
/// [`Queue::unannounced`](crate::queue::Queue::unannounced).
#[derive(Debug)]
pub struct CqAnnounce {
    near: Endpoint,
    _far: Endpoint,
}

impl CqAnnounce {
    /// Announces into `cq`, which must have room for `depth` completions more than the application's own.
    ///
    /// # Errors
    ///
    /// When the queue pairs cannot be made or connected.
    pub fn new(
        provider: &Verbs,
        cq: &CompletionQueue,
        depth: u32,
        options: &EndpointOptions,
    ) -> Result<Self, RcError> {
        Self::on(provider, cq.0.clone(), depth, options)
    }

    /// The same for a `struct ibv_cq *`.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); a null pointer is refused.
    ///
    /// # Safety
    ///
    /// `cq` is a live completion queue of the provider's device context, and outlives this.
    pub unsafe fn from_raw(
        provider: &Verbs,
        cq: *mut c_void,
        depth: u32,
        options: &EndpointOptions,
    ) -> Result<Self, RcError> {
        let null = || failed("a null ibv_cq")(io::ErrorKind::InvalidInput.into());
        let raw = NonNull::new(cq.cast()).ok_or_else(null)?;
        // SAFETY: the caller's promise.
        let cq = unsafe { Cq::lent(provider.pd(), raw) };
        Self::on(provider, Arc::new(cq), depth, options)
    }

    fn on(provider: &Verbs, cq: Arc<Cq>, depth: u32, options: &EndpointOptions) -> Result<Self, RcError> {
        let (near, far) = Endpoint::pair_with(provider.pd(), options, cq, depth)?;
        Ok(Self { near, _far: far })
    }
}

impl Announce for CqAnnounce {
    fn announce(&self, user_data: u64, _ok: bool) -> io::Result<()> {
        self.near.qp().post_empty(user_data)
    }
}
