//! [`Host`]: this side's cache, connection and buffers.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use pindown::provider::verbs::rc::{Address, Endpoint, Request, Segment};
use pindown::provider::verbs::{Key, Region, Verbs};
use pindown::{Access, Cache, PageRange, Provider, Registration};
use serde::{Deserialize, Serialize};

use super::line::Row;
use super::link::Link;
use super::{Line, Side};
use crate::engine::{DeviceArgs, endpoint_options, no_connection};
use crate::exit::CliError;
use crate::monitors::chain;
use crate::perf::{Group, Mode, Pool};
use crate::sys::Span;

pub(super) type Result<T> = std::result::Result<T, String>;

/// Rights for either role, so that each buffer needs one registration in every mode.
const RIGHTS: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);
/// A transfer that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// One of the two hosts.
pub(crate) struct Host {
    endpoint: Endpoint,
    cache: Cache<Verbs>,
    pub(super) link: Link,
    pub(super) side: Side,
    seed: u64,
}

/// One mode's buffers, and what it has registered of them itself.
pub(crate) struct Stage {
    pub(super) mode: Mode,
    pub(super) pool: Pool,
    registered: HashMap<usize, Region>,
}

/// What a transfer holds.
pub(super) enum Held {
    Cached(Registration<Verbs>),
    Own(Region),
    Beforehand,
}

#[derive(Serialize, Deserialize)]
struct Meeting {
    address: Vec<u8>,
}

impl Host {
    /// Connects the queue pairs over the link.
    pub(crate) fn connect(
        cache: Cache<Verbs>,
        device: &DeviceArgs,
        side: Side,
        mut link: Link,
    ) -> std::result::Result<Self, CliError> {
        let endpoint = Endpoint::new(cache.provider(), &endpoint_options(device));
        let endpoint = endpoint.map_err(|error| no_connection(&error))?;
        let peer = meet(&endpoint, &mut link).map_err(|error| super::failed(&error.to_string()))?;
        endpoint.connect(&peer).map_err(|error| no_connection(&error))?;
        // Neither sends before the other is ready to receive.
        meet(&endpoint, &mut link).map_err(|error| super::failed(&error.to_string()))?;
        let seed = if side == Side::Connector { 2 } else { 3 };
        Ok(Self { endpoint, cache, link, side, seed })
    }

    pub(crate) fn monitor_name(&self) -> &'static str {
        if self.cache.provider().caps().coherent { "odp" } else { self.cache.monitor().name() }
    }

    /// Both hosts' rows.
    pub(crate) fn exchange(&mut self, own: &[Row]) -> io::Result<Vec<Row>> {
        self.link.send(&own)?;
        self.link.receive()
    }

    /// A seed that no other transfer of either host has.
    pub(super) fn next_seed(&mut self) -> u64 {
        self.seed += 2;
        self.seed
    }

    pub(super) fn prepare(&self, group: &Group, mode: Mode) -> Result<Stage> {
        let pool = Pool::new(group).map_err(|e| e.to_string())?;
        let mut stage = Stage { mode, pool, registered: HashMap::new() };
        if mode == Mode::Preregistered {
            for span in stage.pool.spans() {
                stage.registered.insert(span.base(), self.register(span)?);
            }
        }
        Ok(stage)
    }

    pub(super) fn put_away(&self, mut stage: Stage) -> Result<()> {
        stage.registered.drain().try_for_each(|(_, region)| self.deregister(region))
    }

    /// The next buffer, changed first if it is due.
    pub(super) fn next_buffer(&self, stage: &mut Stage, line: &mut Line) -> Result<Span> {
        let (index, churns) = stage.pool.next();
        if churns {
            line.figures.churns += 1;
            let before = stage.pool.span(index).map_err(|e| e.to_string())?;
            if let Some(region) = stage.registered.remove(&before.base()) {
                self.deregister(region)?;
            }
            stage.pool.churn(index).map_err(|e| e.to_string())?;
        }
        let span = stage.pool.span(index).map_err(|e| e.to_string())?;
        if churns && stage.mode == Mode::Preregistered {
            line.registrations += 1;
            stage.registered.insert(span.base(), self.register(span)?);
        }
        Ok(span)
    }

    /// Gets `span` registered as the mode does.
    pub(super) fn get(&self, stage: &Stage, span: Span, line: &mut Line) -> Result<(Key, Held)> {
        let began = Instant::now();
        let got = match stage.mode {
            Mode::Preregistered => {
                let region = stage.registered.get(&span.base()).ok_or("a buffer is not registered")?;
                (self.cache.provider().key(region), Held::Beforehand)
            }
            Mode::PerOp | Mode::Copy => {
                line.registrations += 1;
                let region = self.register(span)?;
                (self.cache.provider().key(&region), Held::Own(region))
            }
            // The modes between two hosts are others than the last two.
            Mode::Cached | Mode::Async | Mode::Everything => {
                // SAFETY: no Rust reference points into a span (its invariant).
                let held = unsafe { self.cache.acquire(span.ptr(), span.len_bytes(), RIGHTS) };
                let held = held.map_err(|e| chain(&e))?;
                (held.key(), Held::Cached(held))
            }
        };
        line.registering += began.elapsed();
        Ok(got)
    }

    pub(super) fn put(&self, held: Held, line: &mut Line) -> Result<()> {
        let began = Instant::now();
        match held {
            Held::Cached(registration) => drop(registration),
            Held::Own(region) => self.deregister(region)?,
            Held::Beforehand => {}
        }
        line.registering += began.elapsed();
        Ok(())
    }

    /// Moves all bytes of `span`, which is held, and waits.
    pub(super) fn transfer(&self, request: Request, key: Key, span: Span) -> Result<()> {
        let id = self.post(request, key, span)?;
        self.wait_for(id)
    }

    pub(super) fn post(&self, request: Request, key: Key, span: Span) -> Result<u64> {
        let len_bytes = u32::try_from(span.len_bytes()).map_err(|e| e.to_string())?;
        let segment = Segment { addr: span.base(), len_bytes, lkey: key.lkey };
        // SAFETY: no Rust reference points into a span, and the caller puts its registration after
        // the completion only.
        unsafe { self.endpoint.post(request, segment, ()) }.map_err(|e| chain(&e))
    }

    pub(super) fn wait_for(&self, id: u64) -> Result<()> {
        self.endpoint.wait_for(id, PATIENCE).map(drop).map_err(|e| chain(&e))
    }

    pub(super) fn stats(&self) -> pindown::Stats {
        self.cache.stats()
    }

    fn register(&self, span: Span) -> Result<Region> {
        let range = PageRange::covering(span.base(), span.len_bytes()).map_err(|e| chain(&e))?;
        // SAFETY: no Rust reference points into a span (its invariant).
        unsafe { self.cache.provider().register(range, RIGHTS) }.map_err(|e| chain(&e))
    }

    fn deregister(&self, region: Region) -> Result<()> {
        self.cache.provider().deregister(region).map_err(|failed| failed.source.to_string())
    }
}

fn meet(endpoint: &Endpoint, link: &mut Link) -> io::Result<Address> {
    link.send(&Meeting { address: endpoint.address().to_bytes().to_vec() })?;
    let Meeting { address } = link.receive()?;
    let bytes = address.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Address::from_bytes(&bytes).map_err(io::Error::other)
}
