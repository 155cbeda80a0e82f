//! [`SimWire`]: a simulated device. It moves the bytes of the pages that it pinned, mapped still or not.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pindown::provider::sim::{Sim, SimConfig, SimKey, SimMr};
use pindown::queue::prefetch;
use pindown::{Access, Builder, Cache, DeregisterFailed, PageRange, Provider, ProviderCaps, RegisterError};

use super::wire::Wire;
use crate::engine::DeviceArgs;
use crate::exit::CliError;
use crate::monitors::{MonitorName, chain, no_monitor};
use crate::sys::{self, PAGE_BYTES, Span, Via};

/// How long a registration sleeps at least; about what io_uring takes for 64 KiB.
const REGISTER: Duration = Duration::from_micros(20);

/// Copies between a buffer and the wire's lane, page by page as the device's page table has them.
pub(crate) struct SimWire {
    device: SimDevice,
    lane: Span,
    /// Time off the clock since it was asked for: looking up what a real device's hardware knows.
    off_clock: Duration,
}

/// The provider. Clones are the same device.
#[derive(Clone)]
pub(crate) struct SimDevice(Arc<Inner>);

struct Inner {
    sim: Sim,
    /// /proc/self/pagemap. Held while pages are pinned or looked for, so that neither sees half of the other.
    pagemap: Mutex<File>,
    /// By number. Not held over a page fault: a monitor's thread may deregister meanwhile.
    pinned: Mutex<HashMap<u64, Pinned>>,
}

/// A registration, and what its pages held that were unmapped since, by page number.
struct Pinned {
    key: SimKey,
    old: HashMap<u64, Vec<u8>>,
}

impl SimDevice {
    fn new() -> io::Result<Self> {
        let mut config = SimConfig::default();
        config.register_latency = REGISTER;
        let pagemap = Mutex::new(File::open("/proc/self/pagemap")?);
        Ok(Self(Arc::new(Inner { sim: Sim::with(config), pagemap, pinned: Mutex::default() })))
    }

    fn pinned(&self) -> MutexGuard<'_, HashMap<u64, Pinned>> {
        lock(&self.0.pinned)
    }

    /// Keeps what the pages of `span` hold for the registrations that have them pinned.
    fn keep(&self, span: Span) -> io::Result<()> {
        let keys: Vec<SimKey> = self.pinned().values().map(|pinned| pinned.key).collect();
        let range = pages_of(span)?;
        for (key, part) in keys.into_iter().filter_map(|key| Some((key, key.range.intersection(range)?))) {
            for page in part.first_page()..part.end_page() {
                if self.0.sim.transfer(key, page).is_ok_and(|reached| !reached.is_stale()) {
                    let index = (page - range.first_page()) as usize;
                    self.set_old(key, page, one_page(span, index).snapshot());
                }
            }
        }
        Ok(())
    }

    /// Gives new frames to the pages of `span` that nobody has touched since the program changed it. The
    /// kernel says which: free and malloc may or may not have given pages back.
    fn renew(&self, span: Span) -> io::Result<()> {
        let pagemap = lock(&self.0.pagemap);
        let mut page = pages_of(span)?.first_page();
        let mut entries = vec![0_u8; span.len_bytes() / PAGE_BYTES * ENTRY_BYTES];
        pagemap.read_exact_at(&mut entries, page * ENTRY_BYTES as u64)?;
        let gone: Vec<bool> = entries.chunks_exact(ENTRY_BYTES).map(is_gone).collect();
        for run in gone.chunk_by(|a, b| a == b) {
            let pages = run.len() as u64;
            if let (true, Some(range)) = (run[0], PageRange::from_pages(page, pages)) {
                self.0.sim.remap(range);
            }
            page += pages;
        }
        Ok(())
    }

    /// The pages of `span`, counted from its start, for which the device has others than the CPU.
    fn stale_pages(&self, key: SimKey, span: Span, write: bool) -> io::Result<HashSet<usize>> {
        let first = pages_of(span)?.first_page();
        let mut stale = HashSet::new();
        for index in 0..span.len_bytes() / PAGE_BYTES {
            let page = first + index as u64;
            let reached = match write {
                true => self.0.sim.transfer_write(key, page),
                false => self.0.sim.transfer(key, page),
            };
            if reached.map_err(io::Error::other)?.is_stale() {
                stale.insert(index);
            }
        }
        Ok(stale)
    }

    /// What the old page holds. Zeros if it was never one of the program's buffers.
    fn old(&self, key: SimKey, page: u64) -> Vec<u8> {
        let pinned = self.pinned();
        let old = pinned.get(&key.id).and_then(|pinned| pinned.old.get(&page));
        old.cloned().unwrap_or_else(|| vec![0; PAGE_BYTES])
    }

    fn set_old(&self, key: SimKey, page: u64, bytes: Vec<u8>) {
        if let Some(pinned) = self.pinned().get_mut(&key.id) {
            pinned.old.insert(page, bytes);
        }
    }
}

// SAFETY: there is no device. The wire copies through a key only while its caller holds the registration.
unsafe impl Provider for SimDevice {
    type Mr = SimMr;
    type Key = SimKey;

    fn name(&self) -> &'static str {
        self.0.sim.name()
    }

    fn caps(&self) -> ProviderCaps {
        self.0.sim.caps()
    }

    fn key(&self, mr: &SimMr) -> SimKey {
        self.0.sim.key(mr)
    }

    /// As pinning does: faults the pages in, and refuses where nothing is mapped.
    unsafe fn register(&self, range: PageRange, access: Access) -> Result<SimMr, RegisterError> {
        let _unchanged = lock(&self.0.pagemap);
        if let Some(stop) = prefetch(range, access).stop {
            let why = "pages that cannot be faulted in";
            return Err(RegisterError::Unsupported { range, why, source: io::Error::other(stop) });
        }
        // SAFETY: the caller's promises are the same.
        let mr = unsafe { self.0.sim.register(range, access) }?;
        let key = self.key(&mr);
        self.pinned().insert(key.id, Pinned { key, old: HashMap::new() });
        Ok(mr)
    }

    fn deregister(&self, mr: SimMr) -> Result<(), DeregisterFailed<SimMr>> {
        let id = self.key(&mr).id;
        self.0.sim.deregister(mr)?;
        self.pinned().remove(&id);
        Ok(())
    }
}

impl SimWire {
    /// Copies all bytes of `span`: to the lane, or from it (`write`: the device writes memory).
    fn copy(&mut self, key: SimKey, span: Span, write: bool) -> io::Result<()> {
        let start = Instant::now();
        let stale = self.device.stale_pages(key, span, write)?;
        self.off_clock += start.elapsed();
        let lane = self.lane.part(0, span.len_bytes());
        if stale.is_empty() {
            copy(span, lane, write);
            return Ok(());
        }
        for index in 0..span.len_bytes() / PAGE_BYTES {
            let (page, there) = (one_page(span, index), one_page(lane, index));
            if stale.contains(&index) {
                self.copy_old(key, pages_of(page)?.first_page(), there, write);
            } else {
                copy(page, there, write);
            }
        }
        Ok(())
    }

    /// The same for a page that the device alone still has.
    fn copy_old(&self, key: SimKey, page: u64, lane: Span, write: bool) {
        if write {
            self.device.set_old(key, page, lane.snapshot());
        } else {
            lane.write(&self.device.old(key, page));
        }
    }
}

impl Wire for SimWire {
    type Provider = SimDevice;
    const PROVIDER: &'static str = "sim";
    const REGISTERS: &'static str = "regions of a simulated device (registering sleeps 20 µs or more: its GB/s and times are no device's)";

    fn open(monitor: MonitorName, _: &DeviceArgs, len: usize) -> Result<(Self, Cache<SimDevice>), CliError> {
        let device = SimDevice::new().map_err(|error| {
            CliError::machine(format!("no /proc/self/pagemap: {}", chain(&error)), "mount /proc")
        })?;
        let lane = sys::map_new(len).map_err(|error| {
            CliError::machine(format!("no memory for the lane: {error}"), "take a smaller --size")
        })?;
        let wire = Self { device: device.clone(), lane, off_clock: Duration::ZERO };
        let cache = Builder::new(device).monitor(monitor.choice()?).build();
        Ok((wire, cache.map_err(|error| no_monitor(&error))?))
    }

    fn before_change(&self, span: Span) -> io::Result<()> {
        self.device.keep(span)
    }

    fn after_change(&self, span: Span) -> io::Result<()> {
        self.device.renew(span)
    }

    fn send(&mut self, key: SimKey, span: Span) -> io::Result<()> {
        self.copy(key, span, false)
    }

    fn ready(&mut self, len: usize, seed: u64) -> io::Result<()> {
        self.lane.part(0, len).fill(seed);
        Ok(())
    }

    fn receive(&mut self, key: SimKey, span: Span) -> io::Result<()> {
        self.copy(key, span, true)
    }

    fn agrees(&self, span: Span) -> bool {
        span.equals(&self.lane.part(0, span.len_bytes()).snapshot())
    }

    fn take_off_clock(&mut self) -> Duration {
        std::mem::take(&mut self.off_clock)
    }
}

impl Drop for SimWire {
    fn drop(&mut self) {
        let _ = sys::unmap(self.lane, Via::Libc);
    }
}

const ENTRY_BYTES: usize = 8;

/// Of an entry of the pagemap (Documentation/admin-guide/mm/pagemap.rst): neither present nor swapped.
fn is_gone(entry: &[u8]) -> bool {
    const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
    let entry = u64::from_ne_bytes(entry.try_into().expect("eight bytes"));
    entry & PRESENT_OR_SWAPPED == 0
}

fn copy(span: Span, lane: Span, write: bool) {
    if write { lane.copy_to(span) } else { span.copy_to(lane) }
}

fn one_page(span: Span, index: usize) -> Span {
    span.part(index * PAGE_BYTES, PAGE_BYTES)
}

fn pages_of(span: Span) -> io::Result<PageRange> {
    PageRange::covering(span.base(), span.len_bytes()).map_err(io::Error::other)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_registration_moves_old_bytes_and_leaves_new_memory_alone() {
        let len = 4 * PAGE_BYTES;
        let (mut wire, cache) = SimWire::open(MonitorName::None, &DeviceArgs::default(), len).unwrap();
        let span = sys::map_new(len).unwrap();
        span.fill(1);
        // SAFETY: no Rust reference points into a span.
        let held = unsafe { cache.acquire(span.ptr(), len, Access::READ_WRITE) }.unwrap();
        let tail = span.half(true);
        wire.before_change(tail).unwrap();
        tail.advise(libc::MADV_DONTNEED).unwrap();
        wire.after_change(tail).unwrap();
        span.fill(2);

        wire.send(held.key(), span).unwrap();
        let (head, old) = (span.half(false), wire.lane.half(true).snapshot());
        assert!(wire.agrees(head) && !wire.agrees(span));
        span.fill(1);
        assert!(tail.equals(&old), "what the pages held when they went");

        wire.ready(len, 3).unwrap();
        wire.receive(held.key(), span).unwrap();
        assert!(wire.agrees(head) && tail.equals(&old), "the second half went into the old pages");
        drop((held, cache));
        sys::unmap(span, Via::Libc).unwrap();
    }

    #[test]
    fn what_is_not_mapped_is_not_registered() {
        let (_wire, cache) = SimWire::open(MonitorName::None, &DeviceArgs::default(), PAGE_BYTES).unwrap();
        let span = sys::map_apart(2 * PAGE_BYTES).unwrap();
        sys::unmap(span.half(true), Via::Libc).unwrap();
        // SAFETY: a refused registration reaches no memory.
        let refused = unsafe { cache.provider().register(pages_of(span).unwrap(), Access::READ_WRITE) };
        assert!(matches!(refused, Err(RegisterError::Unsupported { .. })), "{refused:?}");
        sys::unmap(span.half(false), Via::Libc).unwrap();
    }

    #[test]
    fn the_latency_is_stated_as_it_is() {
        assert!(SimWire::REGISTERS.contains(&format!("{} µs", REGISTER.as_micros())));
    }
}
