//! What the worker does at every tick: expiry of the idle, the sweep, memory pressure, the page
//! that `pindown top` reads.

mod idle;
mod sweep;

use std::time::{Duration, Instant};

use pindown_core::{Cache, Provider};

use crate::export::Page;
use crate::sys::pressure::Pressure;
use idle::Idle;
use sweep::Sweep;

/// Ticks are no further apart.
const TICK: Duration = Duration::from_secs(1);
/// Of what is registered, this is kept when memory is short.
const KEPT_UNDER_PRESSURE: (u64, u64) = (1, 2);

/// What is to be done; settings of the builder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) idle: Option<Duration>,
    pub(crate) max_age: Option<Duration>,
    pub(crate) sweep: bool,
    pub(crate) pressure: bool,
    pub(crate) export: bool,
}

/// Between ticks.
#[derive(Debug)]
pub(crate) struct Upkeep {
    next: Instant,
    period: Duration,
    idle: Option<Idle>,
    sweep: Option<Sweep>,
    pressure: Option<Pressure>,
    page: Option<Page>,
}

impl Upkeep {
    pub(crate) fn new(settings: Settings) -> Self {
        let shortest = settings.idle.into_iter().chain(settings.max_age).min();
        let period = shortest.map_or(TICK, |least| least / 4).clamp(Duration::from_millis(5), TICK);
        Self {
            next: Instant::now(),
            period,
            idle: settings.idle.map(Idle::new),
            sweep: settings.sweep.then(Sweep::new),
            // Without PSI there is nothing to react to; the budget still holds.
            pressure: if settings.pressure { Pressure::watch().ok() } else { None },
            page: settings.export.then(Page::new),
        }
    }

    /// How long the worker may sleep.
    pub(crate) fn until_due(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Does what is due.
    pub(crate) fn tick<P: Provider>(&mut self, cache: &Cache<P>) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + self.period;
        if let Some(idle) = &mut self.idle {
            idle.tick(cache, now);
        }
        if cache.config().max_age.is_some() {
            cache.expire_old();
        }
        if self.pressure.as_ref().is_some_and(Pressure::was_short) {
            relieve(cache);
        }
        if let Some(sweep) = &mut self.sweep {
            sweep.tick(cache, now);
        }
        if let Some(page) = &mut self.page {
            page.write(cache);
        }
    }
}

fn relieve<P: Provider>(cache: &Cache<P>) {
    let registered = cache.stats().bytes_registered;
    let left = cache.shrink(registered / KEPT_UNDER_PRESSURE.1 * KEPT_UNDER_PRESSURE.0);
    tracing::warn!(registered, left, "memory is short: registrations were given up");
}

/// Looks once through everything that is registered and drops what is not mapped any more. Returns
/// how many registrations were found so. For a program that knows it unmapped much; the worker does
/// the same bit by bit where the [`Builder`](crate::Builder::sweep) says so.
///
/// # Errors
///
/// `/proc/self/maps` cannot be read.
pub fn sweep<P: Provider>(cache: &Cache<P>) -> std::io::Result<usize> {
    sweep::all(cache)
}
