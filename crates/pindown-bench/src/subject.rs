//! [`Subject`]: a cache, as the benchmark sees it; and [`Pindown`].

use std::time::Duration;

use pindown::{Access, Builder, MonitorChoice, PageRange, Registration};
use pindown_core::sim::Noop;

/// How a subject is made.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// pindown's monitor; other subjects have what they have.
    pub monitor: MonitorChoice,
    /// What a registration takes.
    pub latency: Duration,
    /// Whether neighbours may be registered together.
    pub widen: bool,
    /// Most regions there will be.
    pub regions: usize,
}

/// A registration cache whose registrations do nothing.
pub trait Subject: Send + Sync + Sized + 'static {
    /// One hold on one registration.
    type Hold: Send;
    /// It is what the machine takes, and registers nothing.
    const IS_FLOOR: bool = false;
    /// Makes one. The error says what is missing.
    fn open(settings: &Settings) -> Result<Self, String>;
    /// A registration of those bytes.
    fn get(&self, addr: usize, len: usize) -> Self::Hold;
    /// Something that is read through the hold.
    fn read(hold: &Self::Hold) -> u64;
    /// Ends the hold.
    fn put(&self, hold: Self::Hold);
    /// Registrations so far.
    fn registrations(&self) -> u64;
    /// Bytes registered so far, also those that are not any more.
    fn registered_bytes(&self) -> u64;
    /// Does what was put off until later: drains, deregisters.
    fn settle(&self);
    /// Does what the cache does when this memory changes, without the change itself. `false`: it has
    /// no such call, and the change must be made.
    fn invalidate(&self, addr: usize, len: usize) -> bool;
    /// Whether the hold covers those bytes.
    fn covers(hold: &Self::Hold, addr: usize, len: usize) -> Option<bool>;
    /// Memory that does not grow with the number of regions, in bytes.
    fn fixed_bytes(&self) -> u64 {
        0
    }
    /// Its name and what it runs with.
    fn describe(&self) -> String;
}

/// pindown, with the monitor of the settings.
#[derive(Debug)]
pub struct Pindown(pindown::Cache<Noop>);

impl Subject for Pindown {
    type Hold = Registration<Noop>;

    fn open(settings: &Settings) -> Result<Self, String> {
        let builder = Builder::new(Noop::with_latency(settings.latency)).monitor(settings.monitor.clone());
        // Nothing is pinned, so RLIMIT_MEMLOCK is no bound.
        let builder = builder.widen(settings.widen).max_bytes(1 << 46).relieve_pressure(false).export(false);
        builder.build().map(Self).map_err(|error| error.to_string())
    }

    #[inline(always)]
    fn get(&self, addr: usize, len: usize) -> Self::Hold {
        // SAFETY: there is no device.
        let got = unsafe { self.0.acquire(std::ptr::without_provenance(addr), len, Access::READ_WRITE) };
        got.expect("a registration that does nothing")
    }

    #[inline(always)]
    fn read(hold: &Self::Hold) -> u64 {
        u64::from(hold.key())
    }

    #[inline(always)]
    fn put(&self, hold: Self::Hold) {
        drop(hold);
    }

    fn registrations(&self) -> u64 {
        self.0.stats().registrations
    }

    fn registered_bytes(&self) -> u64 {
        self.0.provider().bytes()
    }

    fn settle(&self) {
        let _ = self.0.flush(PageRange::from_pages(0, 1).expect("a page"));
        self.0.drive();
    }

    fn invalidate(&self, addr: usize, len: usize) -> bool {
        let range = PageRange::covering(addr, len).expect("a range");
        self.0.invalidate(range);
        true
    }

    fn covers(hold: &Self::Hold, addr: usize, len: usize) -> Option<bool> {
        let range = PageRange::covering(addr, len).expect("a range");
        Some(hold.range().contains(range) && !hold.is_stale())
    }

    fn fixed_bytes(&self) -> u64 {
        self.0.policy_arena_bytes() as u64
    }

    fn describe(&self) -> String {
        format!("pindown, monitor {}", self.0.monitor().name())
    }
}
