//! [`Lane`]: one thread's ring, cache and buffers; makes transfers and compares them.

use std::collections::HashMap;
use std::io;
use std::time::Instant;

use pindown::segments::Segments;
use pindown::{Access, Cache, PageRange, Provider, Registration};

use super::Mode;
use super::ahead::{Due, Through};
use super::figures::Figures;
use super::plan::{Group, Until};
use super::pool::Pool;
use super::wire::{Key, Mr, Wire};
use crate::engine::DeviceArgs;
use crate::exit::CliError;
use crate::monitors::{MonitorName, chain};
use crate::sys::{self, Span};

type Result<T> = std::result::Result<T, String>;

/// One thread's part.
pub(crate) struct Lane<W: Wire> {
    wire: W,
    cache: Cache<W::Provider>,
    /// The program reports its changes.
    told: bool,
    /// Makes every transfer's bytes different from all others'.
    seed: u64,
    prefetch: bool,
}

/// One mode's buffers in one group, and what it has registered of them itself.
pub(crate) struct Stage<W: Wire> {
    mode: Mode,
    pool: Pool,
    registered: HashMap<usize, Mr<W>>,
    bounce: Option<(Span, Mr<W>)>,
    through: Through<W::Provider>,
    /// Begun while the transfer before it moved.
    ahead: Option<Due<W::Provider>>,
}

impl<W: Wire> Lane<W> {
    pub(crate) fn new(
        monitor: MonitorName,
        device: &DeviceArgs,
        lane_bytes: usize,
    ) -> std::result::Result<Self, CliError> {
        let (wire, cache) = W::open(monitor, device, lane_bytes)?;
        Ok(Self { wire, cache, told: monitor == MonitorName::Manual, seed: 0, prefetch: false })
    }

    /// Whether changed buffers are readied before they are used.
    pub(crate) fn set_prefetch(&mut self, prefetch: bool) {
        self.prefetch = prefetch;
    }

    pub(crate) fn max_bytes(&self) -> u64 {
        self.cache.max_bytes()
    }

    pub(crate) fn monitor_name(&self) -> &'static str {
        if self.cache.provider().caps().coherent { "odp" } else { self.cache.monitor().name() }
    }

    fn register(&self, span: Span) -> Result<Mr<W>> {
        let range = PageRange::covering(span.base(), span.len_bytes()).map_err(|e| chain(&e))?;
        // SAFETY: no Rust reference points into a span (its invariant).
        let register = || unsafe { self.cache.provider().register(range, Access::READ_WRITE) };
        match register() {
            Err(error) if error.evicting_may_help() => {
                // A tight limit is shared with what mode cached keeps between its turns.
                self.cache.shrink(0);
                register().map_err(|e| chain(&e))
            }
            result => result.map_err(|e| chain(&e)),
        }
    }

    fn deregister(&self, mr: Mr<W>) -> Result<()> {
        self.cache.provider().deregister(mr).map_err(|failed| failed.source.to_string())
    }

    /// Buffers for a mode, registered where the mode does so beforehand.
    pub(crate) fn prepare(&self, group: &Group, mode: Mode) -> Result<Stage<W>> {
        let pool = Pool::new(group).map_err(|e| e.to_string())?;
        for span in pool.spans() {
            self.wire.after_change(span).map_err(|e| e.to_string())?;
        }
        let through = Through::new(mode, &self.cache)?;
        let mut stage = Stage { mode, pool, registered: HashMap::new(), bounce: None, through, ahead: None };
        if mode == Mode::Preregistered {
            for span in stage.pool.spans() {
                stage.registered.insert(span.base(), self.register(span)?);
            }
        }
        if mode == Mode::Copy {
            let span = sys::map_new(group.size_bytes).map_err(|e| e.to_string())?;
            stage.bounce = Some((span, self.register(span)?));
        }
        Ok(stage)
    }

    /// Deregisters what the mode registered beforehand.
    pub(crate) fn put_away(&self, mut stage: Stage<W>) -> Result<()> {
        for (_, mr) in stage.registered.drain() {
            self.deregister(mr)?;
        }
        if let Some((span, mr)) = stage.bounce.take() {
            self.deregister(mr)?;
            sys::unmap(span, sys::Via::Libc).map_err(|e| e.to_string())?;
        }
        for span in stage.pool.spans() {
            self.wire.before_change(span).map_err(|e| e.to_string())?; // it goes with the pool
        }
        Ok(())
    }

    /// Transfers until the time is up or the count reached.
    pub(crate) fn slice(&mut self, stage: &mut Stage<W>, until: Until, figures: &mut Figures) {
        let before = self.cache.stats();
        let (start, first) = (Instant::now(), figures.ops() + figures.errors);
        loop {
            let done = match until {
                Until::Elapsed(time) => start.elapsed() >= time,
                Until::Ops(ops) => figures.ops() + figures.errors - first >= ops,
            };
            if done || figures.errors >= MOST_ERRORS {
                break;
            }
            if let Err(error) = self.transfer(stage, figures) {
                figures.error(error);
                if let Err(error) = self.wire.clear() {
                    figures.error(error.to_string());
                }
            }
        }
        match stage.mode.is_coherent() {
            true => figures.cache(&before, &self.cache.stats()),
            false => figures.registered(stage.registered_bytes()),
        }
    }

    /// Changes the next buffer if it is its turn, and in mode async begins to register it.
    fn begin(&self, stage: &mut Stage<W>, figures: &mut Figures) -> Result<Due<W::Provider>> {
        let (index, churns) = stage.pool.next();
        if churns {
            figures.churns += 1;
            self.churn(stage, index)?;
        }
        let span = stage.pool.span(index).map_err(|e| e.to_string())?;
        stage.through.begin(index, churns && self.prefetch, &self.cache, span)
    }

    /// Writes new bytes into the next buffer, moves them, and compares.
    fn transfer(&mut self, stage: &mut Stage<W>, figures: &mut Figures) -> Result<()> {
        let due = match stage.ahead.take() {
            Some(due) => due,
            None => self.begin(stage, figures)?,
        };
        if stage.mode == Mode::Async && stage.pool.count() > 1 {
            stage.ahead = Some(self.begin(stage, figures)?);
        }
        let span = stage.pool.span(due.index()).map_err(|e| e.to_string())?;
        self.seed += 2;
        span.fill(self.seed);
        let out = self.seed.is_multiple_of(4);
        if !out {
            // Bytes for the buffer to receive, unlike those that are in it.
            self.wire.ready(span.len_bytes(), self.seed + 1).map_err(|e| e.to_string())?;
        }
        let preemptions = sys::preemptions();
        let start = Instant::now();
        let agreed = self.registered_transfer(stage, due, span, out)?;
        let time = start.elapsed() - self.wire.take_off_clock();
        let preempted = sys::preemptions() != preemptions;
        let agrees = agreed.unwrap_or_else(|| self.wire.agrees(span));
        figures.transfer(time, span.len_bytes(), agrees);
        if preempted {
            figures.was_preempted(time, span.len_bytes());
        }
        Ok(())
    }

    /// The program changes a buffer. In mode preregistered it also sees to its registration, and a
    /// monitor that only knows what it is told is told.
    fn churn(&self, stage: &mut Stage<W>, index: usize) -> Result<()> {
        let before = stage.pool.span(index).map_err(|e| e.to_string())?;
        if let Some(mr) = stage.registered.remove(&before.base()) {
            self.deregister(mr)?;
        }
        self.change(&mut stage.pool, index, before).map_err(|e| e.to_string())?;
        if self.told && stage.mode.is_coherent() {
            let range = PageRange::covering(before.base(), before.len_bytes()).map_err(|e| chain(&e))?;
            self.cache.invalidate(range);
        }
        if stage.mode == Mode::Preregistered {
            let after = stage.pool.span(index).map_err(|e| e.to_string())?;
            stage.registered.insert(after.base(), self.register(after)?);
        }
        Ok(())
    }

    /// Changes it, with the wire knowing.
    fn change(&self, pool: &mut Pool, index: usize, before: Span) -> io::Result<()> {
        self.wire.before_change(before)?;
        pool.churn(index)?;
        self.wire.after_change(pool.span(index)?)
    }

    /// What is timed: get it registered, move it, let go. Says whether the bytes agree, where that had to be
    /// looked at in parts.
    fn registered_transfer(
        &mut self,
        stage: &mut Stage<W>,
        due: Due<W::Provider>,
        span: Span,
        out: bool,
    ) -> Result<Option<bool>> {
        let moved = match stage.mode {
            Mode::Cached => {
                let held = acquire(&self.cache, span)?;
                self.move_bytes(held.key(), span, out)
            }
            Mode::Async => {
                let held = stage.through.finish(due, &self.cache, span)?;
                self.move_bytes(held.key(), span, out)
            }
            Mode::Everything => {
                let segments = stage.through.keys(span)?;
                return match segments.as_slice() {
                    [all] => self.move_bytes(all.key(), span, out).map(|()| None),
                    _ => self.move_parts(&segments, span, out).map(Some),
                };
            }
            Mode::PerOp => {
                let mr = self.register(span)?;
                let moved = self.move_bytes(self.cache.provider().key(&mr), span, out);
                self.deregister(mr).and(moved)
            }
            Mode::Preregistered => {
                let mr = stage.registered.get(&span.base()).ok_or("a buffer is not registered")?;
                self.move_bytes(self.cache.provider().key(mr), span, out)
            }
            Mode::Copy => {
                let (bounce, mr) = stage.bounce.as_ref().ok_or("no registered buffer to copy through")?;
                self.move_copied(self.cache.provider().key(mr), *bounce, span, out)
            }
        };
        moved.map(|()| None)
    }

    /// Memory that several registrations cover: one transfer a segment, each compared by itself.
    fn move_parts(&mut self, segments: &Segments<W::Provider>, span: Span, out: bool) -> Result<bool> {
        let mut agree = true;
        self.wire.clear().map_err(|e| e.to_string())?; // what was readied was for one transfer
        for segment in segments {
            let part = span.part(segment.addr().addr() - span.base(), segment.len_bytes());
            if !out {
                self.wire.ready(part.len_bytes(), self.seed + 1).map_err(|e| e.to_string())?;
            }
            self.move_bytes(segment.key(), part, out)?;
            agree &= self.wire.agrees(part);
        }
        Ok(agree)
    }

    fn move_copied(&mut self, key: Key<W>, bounce: Span, span: Span, out: bool) -> Result<()> {
        if out {
            span.copy_to(bounce);
        }
        self.move_bytes(key, bounce, out)?;
        if !out {
            bounce.copy_to(span);
        }
        Ok(())
    }

    fn move_bytes(&mut self, key: Key<W>, span: Span, out: bool) -> Result<()> {
        let moved = match out {
            true => self.wire.send(key, span),
            false => self.wire.receive(key, span),
        };
        moved.map_err(|error| format!("the transfer failed: {error}"))
    }
}

/// From the cache, registering if need be.
pub(super) fn acquire<P: Provider>(cache: &Cache<P>, span: Span) -> Result<Registration<P>> {
    // SAFETY: no Rust reference points into a span (its invariant).
    let held = unsafe { cache.acquire(span.ptr(), span.len_bytes(), Access::READ_WRITE) };
    held.map_err(|e| chain(&e))
}

/// Errors after which a line is given up.
const MOST_ERRORS: u64 = 100;

impl<W: Wire> Stage<W> {
    fn registered_bytes(&self) -> u64 {
        let spans = self.pool.spans();
        let size = spans.first().map_or(0, |s| s.len_bytes() as u64);
        match self.mode {
            Mode::Preregistered => size * spans.len() as u64,
            _ => size,
        }
    }
}
