//! [`Recorder`]: where a running program's events go.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Event, Op};
use crate::Access;

/// Events that wait for the writer; 40 bytes each.
const SLOTS: usize = 1 << 16;

static CURRENT: OnceLock<Recorder> = OnceLock::new();

/// The process's recorder, if one was [started](start).
#[inline]
pub fn recorder() -> Option<&'static Recorder> {
    CURRENT.get()
}

/// Starts recording in this process: caches built from now on record. Once started it stays.
/// `now_ns`: the time from which the trace counts, of the host's clock.
pub fn start(now_ns: u64) -> &'static Recorder {
    CURRENT.get_or_init(|| Recorder::new(now_ns))
}

/// A bounded queue of events: any thread pushes without blocking, allocating or locking, one drains.
/// What finds it full is dropped and counted.
///
/// Vyukov's bounded queue. Fields are atomics, so that a slot needs no unsafe code; its sequence
/// number orders them.
#[derive(Debug)]
pub struct Recorder {
    slots: Box<[Slot]>,
    tail: AtomicU64,
    head: AtomicU64,
    draining: AtomicBool,
    dropped: AtomicU64,
    last_id: AtomicU64,
    start_ns: u64,
}

#[derive(Debug)]
struct Slot {
    /// The position that may write it; one more once it is written.
    turn: AtomicU64,
    t_ns: AtomicU64,
    /// Operation in the low 2 bits, access in the next 8, id above.
    what: AtomicU64,
    addr: AtomicU64,
    len: AtomicU64,
}

const ACCESS_SHIFT: u32 = 2;
const ID_SHIFT: u32 = 10;

impl Recorder {
    fn new(start_ns: u64) -> Self {
        let slot = |turn| Slot {
            turn: AtomicU64::new(turn),
            t_ns: AtomicU64::new(0),
            what: AtomicU64::new(0),
            addr: AtomicU64::new(0),
            len: AtomicU64::new(0),
        };
        Self {
            slots: (0..SLOTS as u64).map(slot).collect(),
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            last_id: AtomicU64::new(0),
            start_ns,
        }
    }

    /// Records a request; returns its id.
    pub(crate) fn acquire(&self, now_ns: u64, addr: u64, len: u64, access: Access) -> u64 {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        self.push(now_ns, id << ID_SHIFT | u64::from(access.bits()) << ACCESS_SHIFT, addr, len);
        id
    }

    /// Without a time: the put's caller has no clock at hand, so it gets that of its predecessor.
    pub(crate) fn put(&self, id: u64) {
        self.push(0, id << ID_SHIFT | 1, 0, 0);
    }

    pub(crate) fn invalidate(&self, addr: u64, len: u64) {
        self.push(0, 2, addr, len);
    }

    pub(crate) fn registered(&self, now_ns: u64, id: u64, cost_ns: u64) {
        self.push(now_ns, id << ID_SHIFT | 3, 0, cost_ns);
    }

    /// Events lost because the writer was too slow.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn push(&self, now_ns: u64, what: u64, addr: u64, len: u64) {
        let mut at = self.tail.load(Ordering::Relaxed);
        loop {
            let slot = &self.slots[at as usize % SLOTS];
            let turn = slot.turn.load(Ordering::Acquire);
            if turn < at {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return; // still holds the event of the round before
            }
            if turn > at {
                at = self.tail.load(Ordering::Relaxed);
                continue;
            }
            match self.tail.compare_exchange_weak(at, at + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return slot.fill(now_ns, what, addr, len, at),
                Err(newer) => at = newer,
            }
        }
    }

    /// Moves what waits to the end of `out`, oldest first, and returns how many. One drains at a time:
    /// while another does, this returns 0.
    pub fn drain(&self, out: &mut Vec<Event>) -> usize {
        if self.draining.swap(true, Ordering::Acquire) {
            return 0;
        }
        let before = out.len();
        let mut last_ns = out.last().map_or(0, |e| e.t_ns);
        let mut at = self.head.load(Ordering::Relaxed);
        while let Some(mut event) = self.slots[at as usize % SLOTS].take(at) {
            event.t_ns = if event.t_ns == 0 { last_ns } else { event.t_ns.saturating_sub(self.start_ns) };
            last_ns = event.t_ns;
            out.push(event);
            at += 1;
        }
        self.head.store(at, Ordering::Relaxed);
        self.draining.store(false, Ordering::Release);
        out.len() - before
    }
}

impl Slot {
    fn fill(&self, now_ns: u64, what: u64, addr: u64, len: u64, at: u64) {
        self.t_ns.store(now_ns, Ordering::Relaxed);
        self.what.store(what, Ordering::Relaxed);
        self.addr.store(addr, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.turn.store(at + 1, Ordering::Release);
    }

    fn take(&self, at: u64) -> Option<Event> {
        if self.turn.load(Ordering::Acquire) != at + 1 {
            return None;
        }
        let load = |field: &AtomicU64| field.load(Ordering::Relaxed);
        let (what, addr, len) = (load(&self.what), load(&self.addr), load(&self.len));
        let id = what >> ID_SHIFT;
        let op = match what & 3 {
            0 => Op::Acquire {
                id,
                addr,
                len,
                access: Access::from_bits_truncate((what >> ACCESS_SHIFT) as u8),
            },
            1 => Op::Put { id },
            2 => Op::Invalidate { addr, len },
            _ => Op::Registered { id, cost_ns: len },
        };
        let event = Event { t_ns: load(&self.t_ns), op };
        self.turn.store(at + SLOTS as u64, Ordering::Release);
        Some(event)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn events_come_out_as_they_went_in() {
        let recorder = Recorder::new(1000);
        let id = recorder.acquire(1500, 0x7000, 99, Access::READ_WRITE);
        recorder.registered(1700, id, 123);
        recorder.put(id);
        recorder.invalidate(0x7000, 4096);
        let mut out = Vec::new();
        assert_eq!(recorder.drain(&mut out), 4);
        let ops = [
            (500, Op::Acquire { id, addr: 0x7000, len: 99, access: Access::READ_WRITE }),
            (700, Op::Registered { id, cost_ns: 123 }),
            (700, Op::Put { id }),
            (700, Op::Invalidate { addr: 0x7000, len: 4096 }),
        ];
        assert_eq!(out, ops.map(|(t_ns, op)| Event { t_ns, op }));
    }

    #[test]
    fn a_full_queue_drops_counts_and_recovers() {
        let recorder = Recorder::new(0);
        (0..SLOTS + 7).for_each(|_| recorder.put(1));
        assert_eq!(recorder.dropped(), 7);
        assert_eq!(recorder.drain(&mut Vec::new()), SLOTS);
        recorder.put(2);
        assert_eq!(recorder.drain(&mut Vec::new()), 1);
    }

    #[test]
    fn threads_lose_and_invent_nothing() {
        const EACH: usize = 20_000;
        let recorder = Recorder::new(0);
        let mut out = Vec::new();
        std::thread::scope(|scope| {
            let push = || (0..EACH).for_each(|n| _ = recorder.acquire(1, n as u64, 7, Access::READ));
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(push)).collect();
            while !threads.iter().all(|t| t.is_finished()) {
                recorder.drain(&mut out);
            }
        });
        recorder.drain(&mut out);
        let ids: HashSet<_> = out
            .iter()
            .map(|e| matches!(e.op, Op::Acquire { id, len: 7, .. } if id > 0).then_some(e.op))
            .map(|op| format!("{op:?}"))
            .collect();
        assert_eq!(ids.len() as u64 + recorder.dropped(), 3 * EACH as u64);
        assert_eq!(out.len(), ids.len());
    }
}
