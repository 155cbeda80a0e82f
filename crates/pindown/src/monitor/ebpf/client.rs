//! [`Client`]: a watched process's end: its pages, its ring, and what keeps the programs attached.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pindown_core::Drained;

use super::engine::{Engine, SlotFds};
use super::hooks::Variant;
use crate::sys::bpf;
use crate::sys::bpf_pages::{Filter, Record, Shared, Status};
use crate::sys::bpf_ring::BpfRing;
use crate::sys::fork::PrivateFd;
use crate::sys::process::Process;

/// How long a drain waits for a record that is being written: its program runs for well under a
/// microsecond unless it was preempted, which is not worth waiting for.
const SPINS: u32 = 4096;

/// Who enrolled the client. Dropping it ends the enrolment.
#[derive(Debug)]
pub(crate) enum Sponsor {
    /// This process's own programs.
    Own(Arc<Engine>, u32),
    /// A helper: its connection, and copies of its links, with which the programs stay attached
    /// even if it is killed.
    Helper { _connection: PrivateFd, _links: Vec<PrivateFd> },
}

impl Drop for Sponsor {
    fn drop(&mut self) {
        if let Self::Own(engine, slot) = self
            && let Err(e) = engine.release(*slot)
        {
            tracing::warn!("ebpf: slot {slot} could not be released: {e}");
        }
    }
}

/// What the client knows of the programs that serve it.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) variant: Variant,
    /// The attached programs: number and name.
    pub(crate) hooks: Vec<(usize, String)>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) slot: u32,
    pub(crate) status: Shared<Status>,
    pub(crate) filter: Shared<Filter>,
    pub(crate) service: Service,
    ring: BpfRing,
    ring_fd: OwnedFd,
    /// Records consumed, and drops already reported. Touched by the one drainer.
    consumed: AtomicU64,
    dropped: AtomicU64,
    owner: Process,
    sponsor: Sponsor,
}

impl Client {
    pub(crate) fn new(fds: SlotFds, service: Service, sponsor: Sponsor) -> io::Result<Self> {
        bpf::show_break();
        Ok(Self {
            slot: fds.slot,
            status: Shared::new(fds.status.as_fd())?,
            filter: Shared::new(fds.filter.as_fd())?,
            ring: BpfRing::new(fds.ring.as_fd(), fds.ring_bytes)?,
            ring_fd: fds.ring,
            service,
            consumed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            owner: Process::current(),
            sponsor,
        })
    }

    /// Whether a helper serves it.
    pub(crate) fn is_helped(&self) -> bool {
        matches!(self.sponsor, Sponsor::Helper { .. })
    }

    /// Whether this is the process that was enrolled, not a forked child.
    pub(crate) fn is_owner(&self) -> bool {
        self.owner.is_current()
    }

    /// Readable when there are records, if `filter.wake` is set.
    pub(crate) fn ring_fd(&self) -> BorrowedFd<'_> {
        self.ring_fd.as_fd()
    }

    /// Hands over what happened up to some value of the generation word. For one thread at a time;
    /// no allocation, no lock.
    ///
    /// Complete means: every record that was *reserved* when the word was read has been consumed. A
    /// record precedes its bump, so all that the word counts are among them. (Counting records
    /// against the word alone would not do: a record whose bump is yet to come could stand in for a
    /// bumped one that hides behind another CPU's unfinished one.) The count is compared besides, to
    /// notice programs and ring out of step.
    pub(crate) fn drain(&self, mut each: impl FnMut(Record)) -> Drained {
        let generation = self.status.generation.load(Ordering::Acquire);
        let dropped = self.status.dropped.load(Ordering::Acquire);
        if !self.is_owner() {
            return Drained::Lost(generation);
        }
        let limit = self.ring.reserved();
        let mut consumed = self.consumed.load(Ordering::Relaxed);
        let mut complete = false;
        for _ in 0..SPINS {
            let pass = self.ring.consume(limit, &mut each);
            consumed += pass.records;
            complete = pass.complete;
            if complete {
                break;
            }
            std::hint::spin_loop();
        }
        self.consumed.store(consumed, Ordering::Relaxed);
        let none_dropped = self.dropped.swap(dropped, Ordering::Relaxed) == dropped;
        let in_step = consumed + dropped >= generation;
        if complete && none_dropped && in_step {
            Drained::UpTo(generation)
        } else {
            Drained::Lost(generation)
        }
    }
}
