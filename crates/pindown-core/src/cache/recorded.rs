//! Requests while the process records a trace.

use std::cell::Cell;
use std::sync::Arc;

use super::{Inner, Registration};
use crate::hold::Held;
use crate::trace::Recorder;
use crate::{Access, AcquireError, PageRange, Provider};

thread_local! {
    /// What the last registration on this thread took; 0: none since it was asked for.
    static COST_NS: Cell<u64> = const { Cell::new(0) };
}

impl<P: Provider> Inner<P> {
    /// A registration was made on this thread.
    pub(super) fn note_cost(&self, cost_ns: u64) {
        if self.recorder.is_some() {
            COST_NS.set(cost_ns.max(1));
        }
    }

    pub(super) fn acquire_recorded(
        self_: &Arc<Self>,
        recorder: &Recorder,
        addr: usize,
        len: usize,
        access: Access,
    ) -> Result<Registration<P>, AcquireError> {
        let id = recorder.acquire(self_.host.now_ns(), addr as u64, len as u64, access);
        COST_NS.set(0);
        let acquired = match self_.find_recorded(addr, len, access) {
            Some(held) => Ok(Registration::new(held)),
            None => Self::acquire_exact(self_, addr, len, access),
        };
        let cost_ns = COST_NS.get();
        if cost_ns != 0 {
            recorder.registered(self_.host.now_ns(), id, cost_ns);
        }
        match acquired {
            Ok(registration) => Ok(registration.recorded(id)),
            Err(error) => {
                recorder.put(id);
                Err(error)
            }
        }
    }

    /// Only what is found is a use.
    pub(super) fn lookup_recorded(
        self_: &Arc<Self>,
        recorder: &Recorder,
        addr: usize,
        len: usize,
        access: Access,
    ) -> Option<Registration<P>> {
        let found = match self_.find_recorded(addr, len, access) {
            Some(held) => Some(Registration::new(held)),
            None => Self::lookup_exact(self_, addr, len, access),
        };
        let registration = found?;
        let id = recorder.acquire(self_.host.now_ns(), addr as u64, len as u64, access);
        Some(registration.recorded(id))
    }

    /// What [`hit`](Self::hit) does when nothing is recorded.
    fn find_recorded(&self, addr: usize, len: usize, access: Access) -> Option<Held<P>> {
        PageRange::covering(addr, len).ok()?;
        if !self.is_settled() || !self.is_current() {
            return None;
        }
        self.find_fast(addr, len, access)
    }
}
