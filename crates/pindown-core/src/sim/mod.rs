//! [`Sim`]: a simulated provider, for tests without a device.
//!
//! It keeps a software page table, so that a stale registration is visible: what was pinned at registration
//! is compared with what is mapped now. It sleeps, fails and panics as told, and keeps books.
//!
//! ```
//! use pindown_core::sim::{Call, Fault, Sim};
//! use pindown_core::{Access, PageRange, Provider};
//!
//! let sim = Sim::new();
//! let range = PageRange::from_pages(0x1000, 4).unwrap();
//! // SAFETY: a simulated device does not touch memory.
//! let mr = unsafe { sim.register(range, Access::READ) }?;
//! let key = sim.key(&mr);
//! assert!(!sim.transfer(key, 0x1001)?.is_stale());
//! sim.remap(PageRange::from_pages(0x1001, 1).unwrap());
//! assert!(sim.transfer(key, 0x1001)?.is_stale());
//!
//! sim.fail(Call::Deregister, 1, 2, Fault::Io); // the next two fail
//! let mr = sim.deregister(mr).unwrap_err().mr;
//! let mr = sim.deregister(mr).unwrap_err().mr;
//! sim.deregister(mr).unwrap();
//! assert!(sim.books().closed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod books;
mod faults;
mod noop;
mod pages;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError};
#[cfg(not(tsan))]
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::Duration;

pub use self::books::{Books, Violation};
use self::faults::Faults;
pub use self::faults::{Call, Fault};
pub use self::noop::Noop;
use self::pages::PageTable;
#[cfg(tsan)]
use crate::sync::{Mutex, MutexGuard};
use crate::{Access, Affinity, DeregisterFailed, Limit, PageRange, Provider, ProviderCaps, RegisterError};

/// Settings of a [`Sim`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimConfig {
    /// How long a registration sleeps: half before it pins the pages, half after.
    pub register_latency: Duration,
    /// How long a deregistration sleeps.
    pub deregister_latency: Duration,
    /// What [`Provider::caps`] says; also enforced.
    pub caps: ProviderCaps,
    /// Only the thread that made it may register and deregister.
    pub owned: bool,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            register_latency: Duration::ZERO,
            deregister_latency: Duration::ZERO,
            caps: ProviderCaps::default(),
            owned: false,
        }
    }
}

/// Where a call is, for [`Sim::on_step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// A registration has not looked at the pages yet.
    BeforePin,
    /// It has pinned them, and not returned yet.
    AfterPin,
    /// A deregistration has not let go yet.
    BeforeUnpin,
}

type Hook = Arc<dyn Fn(Step, PageRange) + Send + Sync>;

/// A simulated provider. Clones are the same one, so a test keeps a handle beside the cache's.
#[derive(Clone)]
pub struct Sim(Arc<Inner>);

struct Inner {
    config: SimConfig,
    maker: ThreadId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pages: PageTable,
    faults: Faults,
    books: Books,
    live: HashMap<u64, Live>,
    huge: Vec<PageRange>,
    last_id: u64,
    hook: Option<Hook>,
}

/// A registration as the simulated device has it.
struct Live {
    range: PageRange,
    access: Access,
    frames: Vec<u64>,
}

/// What a request names the memory by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SimKey {
    /// Number of the registration; never used again.
    pub id: u64,
    /// Its pages.
    pub range: PageRange,
}

/// One registration.
#[derive(Debug)]
pub struct SimMr {
    key: SimKey,
    huge: bool,
}

/// Which memory a request through a key reaches, and which it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The frame that was pinned at registration.
    pub pinned: u64,
    /// The frame that is mapped now.
    pub mapped: u64,
}

impl Transfer {
    /// The request moves other bytes than the CPU sees.
    pub fn is_stale(self) -> bool {
        self.pinned != self.mapped
    }
}

impl Sim {
    /// One without latency or limits.
    pub fn new() -> Self {
        Self::with(SimConfig::default())
    }

    /// One with settings.
    pub fn with(config: SimConfig) -> Self {
        let maker = thread::current().id();
        Self(Arc::new(Inner { config, maker, state: Mutex::default() }))
    }

    /// Lets `times` calls fail, from the `nth` one from now on (1: the next).
    pub fn fail(&self, call: Call, nth: u64, times: u64, fault: Fault) {
        self.lock().faults.plan(call, nth, times, fault);
    }

    /// Lets every `nth` call from now on fail; 0 ends it.
    pub fn fail_every(&self, call: Call, nth: u64, fault: Fault) {
        self.lock().faults.every(call, nth, fault);
    }

    /// Lets every registration that touches `range` fail.
    pub fn refuse(&self, range: PageRange, fault: Fault) {
        self.lock().faults.refuse(range, fault);
    }

    /// No more faults.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// Registrations that touch `range` are to be released at once, as with huge pages.
    pub fn set_huge(&self, range: PageRange) {
        self.lock().huge.push(range);
    }

    /// Calls `hook` within the calls, with no lock held: it may block, change the page table, or call the
    /// cache.
    pub fn on_step(&self, hook: impl Fn(Step, PageRange) + Send + Sync + 'static) {
        self.lock().hook = Some(Arc::new(hook));
    }

    /// Puts other memory behind `range`, as munmap and mmap at one address do.
    pub fn remap(&self, range: PageRange) {
        self.lock().pages.remap(range);
    }

    /// What a request that reads `page` (a page number) through `key` reaches. Misuse is an error and
    /// goes into the books.
    pub fn transfer(&self, key: SimKey, page: u64) -> Result<Transfer, Violation> {
        self.reach(key, page, false)
    }

    /// The same for a request that writes.
    pub fn transfer_write(&self, key: SimKey, page: u64) -> Result<Transfer, Violation> {
        self.reach(key, page, true)
    }

    /// How many pages of `range` a request through `key` would get wrong.
    pub fn stale_pages(&self, key: SimKey, range: PageRange) -> Result<u64, Violation> {
        let mut stale = 0;
        for page in range.first_page()..range.end_page() {
            stale += u64::from(self.transfer(key, page)?.is_stale());
        }
        Ok(stale)
    }

    /// The totals so far.
    pub fn books(&self) -> Books {
        self.lock().books.clone()
    }

    /// The registrations that exist now, in order of their address.
    pub fn live(&self) -> Vec<PageRange> {
        let mut ranges: Vec<_> = self.lock().live.values().map(|live| live.range).collect();
        ranges.sort_unstable();
        ranges
    }

    /// A test that panics elsewhere should still find the books.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, step: Step, range: PageRange) {
        let hook = self.lock().hook.clone();
        if let Some(hook) = hook {
            hook(step, range);
        }
    }

    fn reach(&self, key: SimKey, page: u64, write: bool) -> Result<Transfer, Violation> {
        let mut state = self.lock();
        let found = state.reach(key, page, write);
        if let Err(violation) = found {
            state.books.violations.push(violation);
        }
        found
    }

    fn on_allowed_thread(&self) -> bool {
        !self.0.config.owned || self.0.maker == thread::current().id()
    }

    /// Counts the call and fails it if it is to fail. No lock is held when it panics.
    fn fault(&self, call: Call, range: PageRange) -> Option<Fault> {
        let fault = {
            let mut state = self.lock();
            let fault = state.faults.next(call, range);
            let failures = match call {
                Call::Deregister => &mut state.books.deregister_failures,
                _ => &mut state.books.register_failures,
            };
            *failures += u64::from(fault.is_some());
            fault
        };
        assert_ne!(fault, Some(Fault::Panic), "the sim provider was told to panic");
        fault
    }
}

impl State {
    fn reach(&mut self, key: SimKey, page: u64, write: bool) -> Result<Transfer, Violation> {
        let (id, range) = (key.id, key.range);
        let live = self.live.get(&id).ok_or(Violation::UsedAfterDeregistration { id })?;
        let index = page.checked_sub(live.range.first_page());
        let frame = index.and_then(|i| live.frames.get(usize::try_from(i).ok()?));
        let &pinned = frame.ok_or(Violation::OutOfRange { id, range, page })?;
        if write && !live.access.is_write() {
            return Err(Violation::NotWritable { id });
        }
        Ok(Transfer { pinned, mapped: self.pages.frame(page) })
    }

    fn pin(&mut self, range: PageRange, access: Access, caps: &ProviderCaps) -> Result<SimMr, RegisterError> {
        if let Some((limit, value)) = self.exceeded(range, caps) {
            self.books.register_failures += 1;
            let (remedy, source) = ("raise the simulated limit", io::Error::from_raw_os_error(12));
            return Err(RegisterError::Limit { range, limit, value: Some(value), remedy, source });
        }
        self.last_id += 1;
        let key = SimKey { id: self.last_id, range };
        let frames = self.pages.frames(range);
        self.live.insert(key.id, Live { range, access, frames });
        self.books.register(range);
        Ok(SimMr { key, huge: self.huge.iter().any(|huge| huge.overlaps(range)) })
    }

    fn exceeded(&self, range: PageRange, caps: &ProviderCaps) -> Option<(Limit, u64)> {
        let bytes = range.len_bytes() as u64;
        if bytes > caps.max_region_bytes {
            return Some((Limit::RegionBytes, caps.max_region_bytes));
        }
        if self.books.live >= caps.max_regions {
            return Some((Limit::Slots, caps.max_regions));
        }
        (self.books.live_bytes + bytes > caps.max_bytes).then_some((Limit::Memory, caps.max_bytes))
    }

    fn unpin(&mut self, mr: &SimMr) {
        match self.live.remove(&mr.key.id) {
            Some(live) => self.books.deregister(live.range),
            None => self.books.violations.push(Violation::DeregisteredTwice { id: mr.key.id }),
        }
    }
}

fn sleep(duration: Duration) {
    if !duration.is_zero() {
        thread::sleep(duration);
    }
}

// SAFETY: there is no device; a key reaches no memory, before or after.
unsafe impl Provider for Sim {
    type Mr = SimMr;
    type Key = SimKey;

    fn name(&self) -> &'static str {
        "sim"
    }

    fn caps(&self) -> ProviderCaps {
        self.0.config.caps
    }

    fn affinity(&self) -> Affinity {
        if self.0.config.owned { Affinity::OwnerThread(self.0.maker) } else { Affinity::AnyThread }
    }

    fn key(&self, mr: &SimMr) -> SimKey {
        mr.key
    }

    unsafe fn register(&self, range: PageRange, access: Access) -> Result<SimMr, RegisterError> {
        if !self.on_allowed_thread() {
            return Err(RegisterError::WrongThread);
        }
        let half = self.0.config.register_latency / 2;
        sleep(half);
        self.step(Step::BeforePin, range);
        if let Some(fault) = self.fault(Call::Register, range) {
            return Err(fault.refuse(range));
        }
        let mr = self.lock().pin(range, access, &self.0.config.caps)?;
        self.step(Step::AfterPin, range);
        sleep(half);
        Ok(mr)
    }

    fn deregister(&self, mr: SimMr) -> Result<(), DeregisterFailed<SimMr>> {
        if !self.on_allowed_thread() {
            return Err(DeregisterFailed { mr, source: io::Error::from_raw_os_error(17) });
        }
        self.step(Step::BeforeUnpin, mr.key.range);
        sleep(self.0.config.deregister_latency);
        if let Some(fault) = self.fault(Call::Deregister, mr.key.range) {
            return Err(DeregisterFailed { mr, source: fault.io_error() });
        }
        self.lock().unpin(&mr);
        Ok(())
    }

    fn release_at_once(&self, mr: &SimMr) -> bool {
        mr.huge
    }
}

impl Default for Sim {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").field("config", &self.0.config).field("books", &self.books()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
