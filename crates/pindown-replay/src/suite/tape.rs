//! [`Tape`]: on which generators record.

use pindown_core::Access;
use pindown_core::trace::{Event, Op};

use crate::bound::Draws;
use crate::rng::Rng;

/// Time between two requests.
const STEP_NS: u64 = 500;
const FIRST: u64 = 0x7f00_0000_0000;

/// A buffer of the imaginary program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    pub(super) addr: u64,
    pub(super) len: u64,
}

/// Which buffers independent draws choose among, and how likely each is.
pub(super) type Law = Vec<(Buffer, f64)>;

/// Names a law of a tape.
#[derive(Clone, Copy, Debug)]
pub(super) struct LawId(u32);

/// Records requests.
pub(super) struct Tape {
    events: Vec<Event>,
    laws: Vec<Law>,
    /// By request: what it was drawn from.
    drawn: Vec<Option<u32>>,
    pub(super) rng: Rng,
    next_addr: u64,
    next_id: u64,
    t_ns: u64,
}

impl Default for Tape {
    fn default() -> Self {
        Self {
            events: Vec::new(),
            laws: Vec::new(),
            drawn: Vec::new(),
            rng: Rng::new(2026),
            next_addr: FIRST,
            next_id: 1,
            t_ns: 0,
        }
    }
}

impl Tape {
    /// A buffer of its own pages.
    pub(super) fn buffer(&mut self, len: u64) -> Buffer {
        let addr = self.next_addr;
        self.next_addr += len.next_multiple_of(4096) + 4096;
        Buffer { addr, len }
    }

    pub(super) fn buffers(&mut self, n: usize, len: u64) -> Vec<Buffer> {
        (0..n).map(|_| self.buffer(len)).collect()
    }

    /// Buffers of log-normally distributed sizes around `median`, within `4 KiB..=most`.
    pub(super) fn mixed_buffers(&mut self, n: usize, median: u64, sigma: f64, most: u64) -> Vec<Buffer> {
        (0..n)
            .map(|_| {
                let len = median as f64 * (sigma * self.rng.normal()).exp();
                self.buffer((len as u64).clamp(4096, most))
            })
            .collect()
    }

    /// Declares a law.
    pub(super) fn law(&mut self, law: Law) -> LawId {
        self.laws.push(law);
        LawId(self.laws.len() as u32 - 1)
    }

    /// Acquired and put, drawn by `law` whatever was drawn before.
    pub(super) fn touch_drawn(&mut self, law: LawId, buffer: Buffer) {
        self.touch(buffer);
        if let Some(last) = self.drawn.last_mut() {
            *last = Some(law.0);
        }
    }

    /// Acquired and put.
    pub(super) fn touch(&mut self, buffer: Buffer) {
        self.drawn.push(None);
        let Buffer { addr, len } = buffer;
        let id = self.next_id;
        self.next_id += 1;
        self.push(Op::Acquire { id, addr, len, access: Access::READ_WRITE });
        self.push(Op::Put { id });
    }

    /// Freed: the pages are gone.
    pub(super) fn free(&mut self, buffer: Buffer) {
        self.push(Op::Invalidate { addr: buffer.addr, len: buffer.len });
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    fn push(&mut self, op: Op) {
        self.t_ns += STEP_NS;
        self.events.push(Event { t_ns: self.t_ns, op });
    }

    pub(super) fn into_parts(self) -> (Vec<Event>, Draws) {
        let chances = |law: Law| law.into_iter().map(|(b, p)| (b.addr, p)).collect();
        let laws = self.laws.into_iter().map(chances).collect();
        (self.events, Draws { laws, drawn: self.drawn })
    }
}
