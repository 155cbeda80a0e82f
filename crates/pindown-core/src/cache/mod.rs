//! [`Cache`]: registrations by address, kept right while the address space changes.
//!
//! | file | what |
//! |---|---|
//! | `fast`, `lookup` | the hit: no lock, no allocation, no system call |
//! | `miss` | the registration: outside every lock, once for concurrent misses |
//! | `drain` | reported changes reach the table |
//! | `reap` | what nobody holds is deregistered |
//! | `room` | budget and eviction |
//! | `learnt` | what a refusing system teaches about the budget |
//! | `known`, `reuse` | which memory was asked for before; registering from the second use on |
//! | `zones`, `widening` | how much more than asked for is registered |
//! | `watch` | who asked to be told when a region ends |
//! | `close` | flush and close |
//! | `upkeep` | expiry, and what there is |
//! | `recorded` | requests while a trace is recorded |

mod close;
mod config;
mod drain;
mod fast;
pub(crate) mod flight;
mod known;
mod learnt;
mod lookup;
mod miss;
mod reap;
mod recorded;
mod registration;
mod reuse;
mod room;
mod state;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod tests_budget;
#[cfg(all(test, not(loom)))]
mod tests_faults;
mod upkeep;
mod watch;
mod widening;
mod zones;

pub use config::Config;
pub use registration::Registration;
pub use watch::Ended;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::eviction::UseClock;
use crate::hold::{self, Counter, Drained, FlatSlab, Generation, Slab};
use crate::interval_map::{FlatTable, IntervalMap, Table};
use crate::stats::Counters;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::trace::{self, Recorder};
use crate::{
    Access, AcquireError, BuildError, CloseError, FlushError, Host, Monitor, Notifier, PageRange, Provider,
    ProviderCaps, Stats,
};
use config::Bounds;
use state::State;

/// A coherent cache of memory registrations. Cheap to clone; all methods are thread-safe.
///
/// The guarantee: once a change of address space has completed, every later
/// [`lookup`](Self::lookup) and [`acquire`](Self::acquire) that overlaps it returns a registration
/// made after the change, as far as the monitor's [coverage](Monitor::coverage) reaches; what is
/// outside it is registered, used and deregistered, never cached.
#[derive(Debug)]
pub struct Cache<P: Provider>(Arc<Inner<P>>);

impl<P: Provider> Clone for Cache<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The fields that hits read come first and are written by slow paths only.
pub(crate) struct Inner<P: Provider> {
    /// Where hits look that need only look, and take slots.
    flat: Option<Flat<P>>,
    drained: Drained,
    generation: Generation,
    notifier: Notifier,
    counter: Counter,
    clock: UseClock,
    table: Arc<Table>,
    slab: Arc<Slab<P>>,
    id: u32,
    uses_slots: bool,
    must_settle: bool,
    /// Hits must do more than look: settle, or be recorded.
    must_look: bool,
    recorder: Option<&'static Recorder>,
    coherent: bool,
    state: Mutex<State<P>>,
    provider: P,
    host: Arc<dyn Host>,
    config: Config,
    caps: ProviderCaps,
    bounds: Bounds,
    counters: Counters,
}

/// Table and records, each reached by one pointer.
#[derive(Debug)]
struct Flat<P: Provider> {
    table: FlatTable,
    slab: FlatSlab<P>,
}

impl<P: Provider> Flat<P> {
    fn new(table: &Arc<Table>, slab: &Arc<Slab<P>>) -> Option<Self> {
        Some(Self { table: FlatTable::new(table.clone())?, slab: FlatSlab::new(slab.clone())? })
    }
}

impl<P: Provider> std::fmt::Debug for Inner<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("provider", &self.provider.name())
            .field("monitor", &self.generation.monitor().name())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// Cache ids are never used twice, so a hold that outlives its cache means nothing to another.
fn next_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    // A model is run many times and must do the same each time.
    if cfg!(loom) { 1 } else { NEXT.fetch_add(1, Ordering::Relaxed) }
}

impl<P: Provider> Inner<P> {
    fn new(provider: P, monitor: Arc<dyn Monitor>, host: Arc<dyn Host>, config: Config) -> Self {
        let table = Arc::new(Table::new(host.clone()));
        let slab = Arc::new(Slab::new(host.clone()));
        let caps = provider.caps();
        let policy = config.policy.boxed();
        let clock = UseClock::new(policy.sampling_shift());
        let must_look = monitor.must_settle() || trace::recorder().is_some();
        let is_plain = host.has_asymmetric_fence() && !must_look;
        let id = next_id();
        let inner = Self {
            state: Mutex::new(State::new(IntervalMap::new(table.clone()), policy)),
            flat: if is_plain { Flat::new(&table, &slab) } else { None },
            table,
            drained: Drained::new(host.clone()),
            generation: Generation::new(monitor.clone()),
            notifier: Notifier::new(),
            slab,
            clock,
            counter: Counter::of(id),
            id,
            uses_slots: host.has_asymmetric_fence(),
            must_settle: monitor.must_settle(),
            must_look,
            recorder: trace::recorder(),
            coherent: caps.coherent,
            bounds: Bounds::new(&config, &caps),
            provider,
            host,
            config,
            caps,
            counters: Counters::default(),
        };
        inner.gauge_budget(inner.bounds);
        inner.clock.set_capacity(inner.bounds.regions.min(1 << 20));
        inner.drained.set(inner.notifier.generation(), inner.generation.load());
        inner
    }

    fn state(&self) -> MutexGuard<'_, State<P>> {
        lock(&self.state)
    }

    fn stats(&self) -> Stats {
        if self.drained.is_forked() {
            return Stats::default(); // the child has no registrations, and locks may be held for ever
        }
        let mut stats = self.counters.snapshot();
        stats.hits += hold::registry().hits(self.id);
        stats.gets = stats.hits + stats.misses;
        stats.kernel_bytes_estimate = stats.regions_registered * self.caps.kernel_bytes_per_region
            + stats.bytes_registered / crate::PAGE_SIZE as u64 * self.caps.kernel_bytes_per_page;
        self.notifier.inbox().counts.fill(&mut stats);
        stats
    }
}

impl<P: Provider> Cache<P> {
    /// Builds a cache and starts `monitor`. Without a worker thread (the `pindown` crate adds
    /// one) somebody must call [`drive`](Self::drive) for deregistrations to happen.
    pub fn new(
        provider: P,
        monitor: Arc<dyn Monitor>,
        host: Arc<dyn Host>,
        config: Config,
    ) -> Result<Self, BuildError> {
        if config.attempts == 0 {
            return Err(BuildError::Config { what: "attempts must be at least 1" });
        }
        let cache = Self(Arc::new(Inner::new(provider, monitor.clone(), host, config)));
        let notifier = cache.notifier();
        monitor.start(notifier).map_err(|source| BuildError::Monitor { name: monitor.name(), source })?;
        Ok(cache)
    }

    /// The registration that serves `len` bytes at `addr` with rights `access`, if there is one.
    /// Never registers. No system call (unless the range must be checked, see
    /// [`Subscription::Checked`](crate::Subscription::Checked)), no allocation, no lock.
    #[inline]
    pub fn lookup(&self, addr: *const u8, len: usize, access: Access) -> Option<Registration<P>> {
        match self.0.hit_fast(addr.addr(), len, access) {
            Some(held) => Some(Registration::new(held)),
            None => Inner::lookup_slow(&self.0, addr.addr(), len, access),
        }
    }

    /// As [`lookup`](Self::lookup), for who will [`acquire`](Self::acquire) what is not found: a miss is
    /// left to that to count.
    #[inline]
    pub fn peek(&self, addr: *const u8, len: usize, access: Access) -> Option<Registration<P>> {
        match self.0.hit(addr.addr(), len, access) {
            Some(held) => Some(Registration::new(held)),
            None => Inner::peek_slow(&self.0, addr.addr(), len, access),
        }
    }

    /// The registration that serves `len` bytes at `addr` with rights `access`; made if there is
    /// none. Registering blocks this thread and no other, except those that wait for the same range.
    ///
    /// Hold it until the transfer has *completed*, not only until it is submitted.
    ///
    /// # Errors
    ///
    /// See [`AcquireError`]; nothing stays registered when it fails.
    ///
    /// # Safety
    ///
    /// While the registration is held, the device may read, and with
    /// [`Access::LOCAL_WRITE`] or remote rights write, all of [`Registration::range`] behind the
    /// compiler's back, when the caller (or a peer) tells it to. The caller must direct transfers
    /// only at memory that it may access so, and not let Rust references claim otherwise meanwhile.
    #[inline]
    pub unsafe fn acquire(
        &self,
        addr: *const u8,
        len: usize,
        access: Access,
    ) -> Result<Registration<P>, AcquireError> {
        match self.0.hit_fast(addr.addr(), len, access) {
            Some(held) => Ok(Registration::new(held)),
            None => Inner::acquire_slow(&self.0, addr.addr(), len, access),
        }
    }

    /// `range` changed: whatever is registered there is stale. Returns how many registrations were.
    /// Takes the cache's lock; inside allocators use the [`notifier`](Self::notifier).
    pub fn invalidate(&self, range: PageRange) -> usize {
        self.0.invalidate(range)
    }

    /// Through which changes are reported from anywhere, also from inside `free()`.
    pub fn notifier(&self) -> Notifier {
        self.0.notifier.clone()
    }

    /// Handles reported changes and deregisters what is due, on this thread. Returns how many
    /// registrations were given back. For providers with [`Affinity::OwnerThread`](crate::Affinity)
    /// the owner must call it, at least every 10 ms for the promise that stale registrations go
    /// within that time.
    pub fn drive(&self) -> usize {
        self.0.drive()
    }

    /// The part of [`drive`](Self::drive) that cannot wait for others to gather: registrations whose
    /// provider wants them [released at once](Provider::release_at_once).
    pub fn drive_urgent(&self) -> usize {
        self.0.drive_urgent()
    }

    /// Sleeps until there is something to [`drive`](Self::drive), or `timeout` is over. For one
    /// thread at a time.
    pub fn wait_for_work(&self, timeout: Duration) {
        self.0.wait_for_work(timeout);
    }

    /// Wakes [`wait_for_work`](Self::wait_for_work).
    pub fn wake_worker(&self) {
        self.0.notifier.inbox().wake.wake();
    }

    /// Returns when the device has no registration of any page of `range`.
    ///
    /// # Errors
    ///
    /// Says who still holds one, or that deregistration fails.
    pub fn flush(&self, range: PageRange) -> Result<(), FlushError> {
        self.0.flush(range)
    }

    /// Ends the cache: later requests fail, everything unheld is deregistered; waits up to
    /// `timeout` for what is held.
    pub fn close(self, timeout: Duration) -> Result<(), CloseError> {
        self.0.close(timeout)
    }

    /// Like [`acquire`](Self::acquire) for any length: one registration a segment where one alone
    /// cannot be long enough (io_uring: 1 GiB), in order of addresses.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); what was acquired before the error is put.
    ///
    /// # Safety
    ///
    /// As [`acquire`](Self::acquire).
    pub unsafe fn acquire_segments(
        &self,
        addr: *const u8,
        len: usize,
        access: Access,
    ) -> Result<Vec<Registration<P>>, AcquireError> {
        let whole = PageRange::covering(addr.addr(), len)?;
        let most =
            (self.0.bounds.region_pages as usize).saturating_mul(crate::PAGE_SIZE).max(crate::PAGE_SIZE);
        let segments = (whole.start()..whole.end()).step_by(most);
        segments
            .map(|start| {
                let (first, end) =
                    (start.max(addr.addr()), start.saturating_add(most).min(addr.addr() + len));
                // SAFETY: the caller's promise covers each part.
                unsafe { self.acquire(addr.with_addr(first), end - first, access) }
            })
            .collect()
    }

    /// Begins to close without waiting: later requests fail, and [`drive`](Self::drive) deregisters
    /// everything that is not held.
    pub fn begin_close(&self) {
        self.0.doom_all();
    }

    /// Drops what is registered and not held, down to `max_bytes` registered. Returns the bytes
    /// registered afterwards.
    pub fn shrink(&self, max_bytes: u64) -> u64 {
        self.0.shrink(max_bytes)
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// Bytes that the eviction policy keeps beside what is registered; does not grow without bound.
    pub fn policy_arena_bytes(&self) -> usize {
        if self.0.drained.is_forked() { 0 } else { self.0.state().policy.arena_bytes() }
    }

    /// The provider.
    pub fn provider(&self) -> &P {
        &self.0.provider
    }

    /// The monitor.
    pub fn monitor(&self) -> &Arc<dyn Monitor> {
        self.0.generation.monitor()
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// Most bytes that may be registered at a time, as in force.
    pub fn max_bytes(&self) -> u64 {
        self.0.bounds.pages.saturating_mul(crate::PAGE_SIZE as u64)
    }

    /// Most registrations that may exist at a time, as in force.
    pub fn max_regions(&self) -> u64 {
        self.0.bounds.regions
    }
}
