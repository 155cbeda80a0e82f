//! The miss: one registration, made outside every lock, shared by all who want it meanwhile.

use std::sync::Arc;

use super::flight::{Flight, Landed};
use super::room::Room;
use super::state::{Leaving, State};
use super::widening::{Extent, Widening};
use super::{Inner, Registration};
use crate::events;
use crate::hold::{Held, NewRegion, State as RegionState};
use crate::monitor::{Monitor, MonitorError, Stamp, Subscription};
use crate::sync::MutexGuard;
use crate::{Access, AcquireError, Affinity, Mapping, PageRange, Provider, RegisterError};

/// One miss's registration.
struct Plan {
    flight: Arc<Flight>,
    request: PageRange,
    extent: Extent,
    access: Access,
    /// Do not cache it: its range kept changing, or the settings say so.
    single: bool,
}

impl Plan {
    fn is_wide(&self) -> bool {
        self.extent.range != self.request
    }
}

/// What the locked part of a request decides.
enum Begun<P: Provider> {
    Hit(Held<P>),
    /// It answers this request, too.
    Wait(Arc<Flight>),
    /// It overlaps this request: what it registers counts when this one is planned.
    WaitTurn(Arc<Flight>),
    LookAgain,
    Fly(Plan),
    AskMapping,
    Reap,
}

/// What a registration came to.
enum Flown<P: Provider> {
    Done(Registration<P>),
    /// The range changed meanwhile.
    Raced,
}

/// A registration that exists and is not yet a region.
struct Fresh<P: Provider> {
    mr: P::Mr,
    stamp: Option<Stamp>,
    cost_ns: u64,
    cacheable: bool,
    subscribed: bool,
}

/// A subscription, which ends unless its registration comes to be.
struct Watch<'a> {
    monitor: &'a dyn Monitor,
    range: PageRange,
    subscribed: bool,
}

impl Watch<'_> {
    /// From now on whoever has the registration ends it.
    fn keep(mut self) -> bool {
        std::mem::take(&mut self.subscribed)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if self.subscribed {
            self.monitor.unsubscribe(self.range);
        }
    }
}

impl<P: Provider> Inner<P> {
    #[cold]
    #[inline(never)]
    pub(super) fn acquire_slow(
        self_: &Arc<Self>,
        addr: usize,
        len: usize,
        access: Access,
    ) -> Result<Registration<P>, AcquireError> {
        if let Some(held) = self_.hit(addr, len, access) {
            return Ok(Registration::new(held));
        }
        match self_.recorder {
            Some(recorder) => Self::acquire_recorded(self_, recorder, addr, len, access),
            None => Self::acquire_exact(self_, addr, len, access),
        }
    }

    pub(super) fn acquire_exact(
        self_: &Arc<Self>,
        addr: usize,
        len: usize,
        access: Access,
    ) -> Result<Registration<P>, AcquireError> {
        let request = PageRange::covering(addr, len)?;
        if self_.drained.is_forked() {
            return Err(AcquireError::Forked);
        }
        if request.pages() > self_.bounds.region_pages {
            let max_region_bytes = self_.caps.max_region_bytes;
            return Err(AcquireError::TooLong { range: request, max_region_bytes });
        }
        Self::request(self_, request, access)
    }

    fn request(
        self_: &Arc<Self>,
        request: PageRange,
        access: Access,
    ) -> Result<Registration<P>, AcquireError> {
        let (mut attempt, mut mapping, mut counted) = (0, None, false);
        loop {
            let single = attempt >= self_.config.attempts
                || self_.config.single_use.intersects(access)
                || !self_.is_settled();
            let begun = self_.begin(request, access, mapping, single)?;
            if !counted && !matches!(begun, Begun::Hit(_)) {
                self_.counters.misses.add(1);
                counted = true;
            }
            match begun {
                Begun::Hit(held) => {
                    self_.counters.hits.add(u64::from(!counted));
                    return Ok(Registration::new(held));
                }
                Begun::LookAgain => {}
                Begun::WaitTurn(flight) => drop(flight.wait()),
                Begun::AskMapping => mapping = Some(self_.host.mapping(request)),
                Begun::Reap => self_.reap_or_yield(),
                Begun::Wait(flight) => match self_.wait_for(&flight) {
                    Landed::Published => {}
                    Landed::Again => attempt += 1,
                    Landed::Failed(error) => return Err(error),
                },
                Begun::Fly(plan) => match Self::fly(self_, plan)? {
                    Flown::Done(registration) => return Ok(registration),
                    Flown::Raced => (attempt, mapping) = (attempt + 1, None),
                },
            }
        }
    }

    fn wait_for(&self, flight: &Flight) -> Landed {
        self.counters.shared_flights.add(1);
        flight.wait()
    }

    /// The locked part: a hit, somebody else's flight, or a plan whose price is charged.
    fn begin(
        &self,
        request: PageRange,
        access: Access,
        mapping: Option<Option<Mapping>>,
        single: bool,
    ) -> Result<Begun<P>, AcquireError> {
        let state = self.drained_state();
        if state.closed {
            return Err(AcquireError::Closed);
        }
        if single {
            return self.begin_flight(state, request, access, Some(None), true);
        }
        if state.map.find(request, access.class()).is_some() {
            return Ok(self.find_held(state, request, access).map_or(Begun::LookAgain, Begun::Hit));
        }
        self.begin_flight(state, request, access, mapping, false)
    }

    fn begin_flight(
        &self,
        mut state: MutexGuard<'_, State<P>>,
        request: PageRange,
        access: Access,
        mapping: Option<Option<Mapping>>,
        single: bool,
    ) -> Result<Begun<P>, AcquireError> {
        if let Some(flight) = state.flights.iter().find(|f| !single && f.serves(request, access)) {
            return Ok(Begun::Wait(flight.clone()));
        }
        let overlaps = |f: &&Arc<Flight>| f.is_shared() && f.range.overlaps(request);
        if let Some(flight) =
            state.flights.iter().find(overlaps).filter(|_| !single && self.may_widen(access))
        {
            return Ok(Begun::WaitTurn(flight.clone()));
        }
        self.check_thread()?;
        let extent = if single {
            Extent { range: request, zoned: false }
        } else {
            match self.extent(&mut state, request, access, mapping) {
                Widening::Register(extent) => extent,
                Widening::AskMapping => return Ok(Begun::AskMapping),
                Widening::Reap => return Ok(Begun::Reap),
            }
        };
        match self.make_room(&mut state, extent.range.pages()) {
            Room::Enough => Ok(Begun::Fly(self.plan(&mut state, request, extent, access, single))),
            Room::Reap => Ok(Begun::Reap),
            Room::None => Err(self.budget_error(&state, extent.range)),
        }
    }

    fn plan(
        &self,
        state: &mut State<P>,
        request: PageRange,
        extent: Extent,
        access: Access,
        single: bool,
    ) -> Plan {
        // Listed also if it is not shared: a change meanwhile must be noticed.
        let flight = Arc::new(Flight::new(extent.range, access, !single));
        state.flights.push(flight.clone());
        state.charge(extent.range.pages(), extent.zoned);
        self.note_charge(state);
        Plan { flight, request, extent, access, single }
    }

    fn note_charge(&self, state: &State<P>) {
        let bytes = state.charged_pages * crate::PAGE_SIZE as u64;
        self.counters.bytes_registered_peak.raise_to(bytes);
        self.counters.regions_registered_peak.raise_to(state.charged_regions);
    }

    pub(super) fn check_thread(&self) -> Result<(), AcquireError> {
        match self.provider.affinity() {
            Affinity::OwnerThread(owner) if owner != std::thread::current().id() => {
                Err(RegisterError::WrongThread.into())
            }
            _ => Ok(()),
        }
    }

    /// Registers and publishes. Whatever happens, the flight lands and the charge is right.
    fn fly(self_: &Arc<Self>, plan: Plan) -> Result<Flown<P>, AcquireError> {
        let mut landing = Landing { inner: self_, plan, landed: false };
        let mut result = self_.register(&landing.plan);
        if result.is_err() && landing.plan.is_wide() {
            // What was added to the request may be what cannot be registered.
            self_.narrow(&mut landing.plan);
            result = self_.register(&landing.plan);
        }
        match result {
            Ok(fresh) => {
                self_.counters.registrations.add(1);
                Ok(Self::publish(self_, fresh, landing))
            }
            Err(error) => {
                self_.counters.register_failures.add(1);
                events::register_failed(self_.provider.name(), landing.plan.extent.range, &error);
                landing.land(Landed::Failed(error.clone()), true);
                Err(error)
            }
        }
    }

    /// Gives up widening.
    fn narrow(&self, plan: &mut Plan) {
        let mut state = self.state();
        state.discharge(plan.extent.range.pages(), plan.extent.zoned);
        plan.extent.range = plan.request;
        state.charge(plan.extent.range.pages(), plan.extent.zoned);
    }

    /// Watches, then registers: a change in between is reported, and found when publishing.
    fn register(&self, plan: &Plan) -> Result<Fresh<P>, AcquireError> {
        let range = plan.extent.range;
        let (subscription, watch) = self.subscribe(plan)?;
        let (cacheable, stamp) = match subscription {
            Subscription::Events => (true, None),
            Subscription::Checked(stamp) => (true, Some(stamp)),
            Subscription::Uncacheable(_) => (false, None),
        };
        let started_ns = self.host.now_ns();
        let registered = match self.register_once(range, plan.access) {
            Err(error) if error.evicting_may_help() => {
                self.learn_refusal(range.pages(), &error);
                if self.evict_for(range.pages()) {
                    self.register_once(range, plan.access)
                } else {
                    Err(error)
                }
            }
            result => result,
        };
        let mr = registered?; // `watch` ends the subscription if this returns
        let cost_ns = self.host.now_ns().saturating_sub(started_ns);
        self.note_cost(cost_ns);
        events::registered(self.provider.name(), range, cost_ns);
        let subscribed = watch.keep();
        Ok(Fresh { mr, stamp, cost_ns, cacheable: cacheable && !plan.single, subscribed })
    }

    fn register_once(&self, range: PageRange, access: Access) -> Result<P::Mr, RegisterError> {
        // SAFETY: the caller of `Cache::acquire` promised that the device may access what the
        // registration covers, as far as it is told to.
        unsafe { self.provider.register(range, access) }
    }

    fn subscribe(&self, plan: &Plan) -> Result<(Subscription, Watch<'_>), AcquireError> {
        let monitor = &**self.generation.monitor();
        let mut watch = Watch { monitor, range: plan.extent.range, subscribed: false };
        if self.coherent || plan.single {
            return Ok((Subscription::Events, watch));
        }
        match monitor.subscribe(watch.range, plan.access) {
            Ok(subscription) => {
                watch.subscribed = true;
                Ok((subscription, watch))
            }
            Err(MonitorError::Forked) => Err(AcquireError::Forked),
            // Not being able to watch is no reason not to serve.
            Err(_) => Ok((Subscription::Uncacheable("the monitor could not watch the range"), watch)),
        }
    }

    /// Makes the registration a region, unless its range changed since before it was made.
    fn publish(self_: &Arc<Self>, fresh: Fresh<P>, landing: Landing<'_, P>) -> Flown<P> {
        let plan = &landing.plan;
        let mut state = self_.drained_state();
        let usable = plan.single || !plan.flight.is_invalidated();
        if !usable || (state.closed && fresh.cacheable) {
            drop(state);
            self_.counters.raced.add(1);
            let Extent { range, zoned } = plan.extent;
            self_.discard(Leaving { mr: fresh.mr, range, zoned, subscribed: fresh.subscribed });
            landing.land(Landed::Again, false);
            return Flown::Raced;
        }
        let (cacheable, now) = (fresh.cacheable, self_.advance_clock(&mut state));
        let cost_ns = fresh.cost_ns;
        let new = self_.new_region(plan, fresh, now);
        let (index, region) = state.insert(&self_.slab, new, plan.request, cost_ns);
        self_.note_birth(&mut state, index);
        let held = if cacheable { Held::count(region) } else { Held::single(region, self_.clone(), index) };
        if plan.single && plan.flight.is_invalidated() {
            region.set_state(RegionState::Stale);
        }
        self_.count_new(region.range(), cacheable);
        landing.land_locked(&mut state, if cacheable { Landed::Published } else { Landed::Again });
        Flown::Done(Registration::new(held))
    }

    fn new_region(&self, plan: &Plan, fresh: Fresh<P>, now: u64) -> NewRegion<P> {
        NewRegion {
            range: plan.extent.range,
            access: plan.access,
            state: if fresh.cacheable { RegionState::Live } else { RegionState::Single },
            key: self.provider.key(&fresh.mr),
            at_once: self.provider.release_at_once(&fresh.mr),
            mr: fresh.mr,
            stamp: fresh.stamp,
            subscribed: fresh.subscribed,
            zoned: plan.extent.zoned,
            now,
        }
    }

    /// Under the cache's lock.
    fn count_new(&self, range: PageRange, cacheable: bool) {
        let (bytes, c) = (range.len_bytes() as u64, &self.counters);
        c.regions_registered.add_locked(1);
        c.bytes_registered.add_locked(bytes);
        if cacheable {
            c.regions_live.add_locked(1);
            c.bytes_live.add_locked(bytes);
        } else {
            c.uncached.add(1);
        }
    }
}

/// Ends a flight exactly once, also when the provider or monitor panics.
struct Landing<'a, P: Provider> {
    inner: &'a Inner<P>,
    plan: Plan,
    landed: bool,
}

impl<P: Provider> Landing<'_, P> {
    fn land(mut self, how: Landed, discharge: bool) {
        self.finish(how, discharge);
    }

    fn land_locked(mut self, state: &mut State<P>, how: Landed) {
        self.remove(state);
        self.plan.flight.land(how);
        self.landed = true;
    }

    fn remove(&self, state: &mut State<P>) {
        state.flights.retain(|f| !Arc::ptr_eq(f, &self.plan.flight));
    }

    fn finish(&mut self, how: Landed, discharge: bool) {
        let mut state = self.inner.state();
        self.remove(&mut state);
        if discharge {
            state.discharge(self.plan.extent.range.pages(), self.plan.extent.zoned);
        }
        drop(state);
        self.plan.flight.land(how);
        self.landed = true;
    }
}

impl<P: Provider> Drop for Landing<'_, P> {
    fn drop(&mut self) {
        if !self.landed {
            self.finish(Landed::Failed(AcquireError::Panicked), true);
        }
    }
}
