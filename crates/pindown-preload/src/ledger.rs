//! [`Ledger`]: the ranges that an engine's own registration cache holds, and which of them changed.
//!
//! An engine (libfabric, UCX) keeps its cache; the ledger sits at the engine's check point, the place that
//! every lookup passes. There [`look`](Ledger::look) reads what the monitor reported and tells, before it
//! returns, which registered ranges are stale; [`watch`](Ledger::watch) is called before a new registration.
//!
//! *Why it is enough.* A change that completed before `look` began is in the monitor's word by then (that is
//! the monitor's contract), so `look` hands it on. Handing on happens under the ledger's lock: a second
//! thread's `look` waits until the first has told the engine everything. A range of which a part changed
//! leaves the ledger whole, and all of it is told, since from then on nobody watches it.

mod watched;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pindown::{Access, Drained, Monitor, MonitorError, Notifier, PageRange, Subscription, Validity};

use self::watched::Watched;
use crate::settings::Watcher;

/// More ranges than an engine keeps: one that never says what it gave up starts anew then.
const MOST: usize = 1 << 16;

/// See the [module](self).
#[derive(Debug)]
pub struct Ledger {
    monitor: Arc<dyn Monitor>,
    notifier: Notifier,
    process: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    watched: Watched,
    /// Up to where the notifier's and the monitor's own words were read.
    seen: (u64, u64),
}

/// How [`Ledger::look`] found a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Watched since before it was registered, and unchanged.
    Watched,
    /// Not (any more): what is registered there may be stale.
    Unknown,
}

/// What an engine can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Only what is reported: it has one check point for all its registrations.
    Reported,
    /// Also what has to be checked: each use of a registration passes [`Ledger::look`] with its range.
    Checked,
}

impl Ledger {
    /// With the monitor of the environment. `None`: off.
    ///
    /// # Errors
    ///
    /// The monitor does not start.
    pub fn from_environment() -> Result<Option<Self>, MonitorError> {
        let notifier = Notifier::detached();
        let monitor = Watcher::from_environment().start(&notifier)?;
        Ok(monitor.map(|monitor| Self::with(monitor, notifier)))
    }

    /// With a monitor that was started with `notifier`, which is nobody else's.
    pub fn with(monitor: Arc<dyn Monitor>, notifier: Notifier) -> Self {
        Self { monitor, notifier, process: std::process::id(), state: Mutex::default() }
    }

    /// The monitor in use.
    pub fn monitor(&self) -> &dyn Monitor {
        &*self.monitor
    }

    /// Whether this is a child of the process that it was made in: nothing is watched, and locks may be
    /// held for ever.
    pub fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Calls `stale` for what changed since the last look, and says how `range` stands after that. `stale`
    /// runs under the ledger's lock and must not call it.
    pub fn look(&self, range: PageRange, stale: &mut dyn FnMut(PageRange)) -> Found {
        if self.is_forked() {
            stale(PageRange::everything());
            return Found::Unknown;
        }
        let settled = !self.monitor.must_settle() || self.monitor.settle();
        let mut state = self.state();
        self.bring_up_to_date(&mut state, range, stale);
        match settled && state.watched.covers(range) {
            true => Found::Watched,
            false => Found::Unknown,
        }
    }

    /// Watches `range` from the return on. Call it before the memory is registered. First of all it tells
    /// `stale` as [`look`](Self::look) does.
    ///
    /// # Errors
    ///
    /// Why what is registered there must not be kept.
    pub fn watch(
        &self,
        range: PageRange,
        keeping: Keeping,
        stale: &mut dyn FnMut(PageRange),
    ) -> Result<(), &'static str> {
        if self.is_forked() {
            return Err("a forked child's memory is not watched");
        }
        // Under the lock, so that no change between the two is told to a ledger that lacks the range.
        let mut state = self.state();
        self.bring_up_to_date(&mut state, range, stale);
        let stamp = match self.monitor.subscribe(range, Access::READ_WRITE) {
            Ok(Subscription::Events) => None,
            Ok(Subscription::Checked(stamp)) if keeping == Keeping::Checked => Some(stamp),
            Ok(Subscription::Checked(_)) => return self.refuse(range, "it has to be checked at each use"),
            Ok(Subscription::Uncacheable(why)) => return self.refuse(range, why),
            Ok(_) => return self.refuse(range, "the monitor's answer is not understood"),
            Err(_) => return Err("the monitor cannot watch it"),
        };
        if state.watched.insert(range, stamp) {
            self.monitor.unsubscribe(range); // the subscription that this one replaces
        }
        Ok(())
    }

    /// One user of `range` fewer.
    pub fn unwatch(&self, range: PageRange) {
        if !self.is_forked() && self.state().watched.remove_one(range) {
            self.monitor.unsubscribe(range);
        }
    }

    /// Whether more is watched than an engine can have registered.
    pub fn is_overfull(&self) -> bool {
        self.state().watched.len() > MOST
    }

    /// Reads on, calls `stale` for all that is watched, and watches nothing any more.
    pub fn forget(&self, stale: &mut dyn FnMut(PageRange)) {
        if !self.is_forked() {
            self.give_up(&mut self.state(), PageRange::everything(), stale);
            stale(PageRange::everything());
        }
    }

    /// Calls `stale` for what changed, without a lookup that asks for it.
    pub fn refresh(&self, stale: &mut dyn FnMut(PageRange)) {
        if !self.is_forked() {
            self.read(&mut self.state(), stale);
        }
    }

    /// Sleeps until something may have changed, for 100 ms at most. For one thread.
    pub fn wait(&self) {
        const TICK: Duration = Duration::from_millis(100);
        match self.monitor.readiness() {
            Some(fd) => crate::sys::wait_readable(fd, TICK),
            None => _ = self.notifier.sleep_detached(TICK),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, range: PageRange, why: &'static str) -> Result<(), &'static str> {
        self.monitor.unsubscribe(range);
        Err(why)
    }

    fn bring_up_to_date(&self, state: &mut State, range: PageRange, stale: &mut dyn FnMut(PageRange)) {
        self.read(state, stale);
        for (checked, stamp) in state.watched.stamps(range) {
            if self.monitor.validate(checked, stamp) == Validity::Changed {
                self.give_up(state, checked, stale);
            }
        }
    }

    fn read(&self, state: &mut State, stale: &mut dyn FnMut(PageRange)) {
        let own = self.even_generation();
        let external = self.monitor.generation().map_or(0, |word| word.load(Ordering::Acquire));
        if state.seen == (own, external) {
            return;
        }
        let (upto, mut lost) = match self.monitor.drain(&self.notifier) {
            Drained::UpTo(upto) => (upto, false),
            Drained::Lost(upto) => (upto, true),
        };
        for change in self.notifier.take_detached() {
            match change {
                Some((range, _)) => self.give_up(state, range, stale),
                None => lost = true,
            }
        }
        if lost {
            self.give_up(state, PageRange::everything(), stale);
            stale(PageRange::everything());
        }
        state.seen = (own, upto);
    }

    /// Odd while the monitor's reader is between reading an event and pushing it, which it does without
    /// blocking.
    fn even_generation(&self) -> u64 {
        loop {
            match self.notifier.generation() {
                even if even % 2 == 0 => return even,
                _ => std::thread::yield_now(),
            }
        }
    }

    fn give_up(&self, state: &mut State, change: PageRange, stale: &mut dyn FnMut(PageRange)) {
        for range in state.watched.take(change) {
            self.monitor.unsubscribe(range);
            stale(range);
        }
    }
}

#[cfg(test)]
mod tests;
