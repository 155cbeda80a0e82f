//! What a refusing system teaches, age, and registering from the second use on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::tests::{Told, at, cache_with, get, pages};
use super::*;
use crate::host::{Mapping, Reservation};
use crate::sim::{Call, Fault, Sim, SimConfig};
use crate::{EventKind, PAGE_SIZE, PlainHost};

const SECOND: u64 = 1_000_000_000;

/// A host whose time the test sets.
#[derive(Debug, Default)]
struct Clock(AtomicU64, PlainHost);

impl Host for Clock {
    fn reserve(&self, _: usize) -> Option<Reservation> {
        None
    }
    unsafe fn release(&self, _: Reservation) {}
    fn has_asymmetric_fence(&self) -> bool {
        false
    }
    fn asymmetric_fence(&self) {}
    fn mapping(&self, range: PageRange) -> Option<Mapping> {
        self.1.mapping(range)
    }
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn with_clock(sim: &Sim, config: Config) -> (Cache<Sim>, Arc<Clock>) {
    let clock = Arc::new(Clock::default());
    (Cache::new(sim.clone(), Arc::new(Told), clock.clone(), config).unwrap(), clock)
}

/// One page of its own, that no neighbour widens.
fn lone(cache: &Cache<Sim>, n: usize) {
    drop(get(cache, n * 8, 1));
}

#[test]
fn a_refusal_is_learnt_and_then_evicted_for_without_asking() {
    let mut config = SimConfig::default();
    config.caps.max_regions = 1000;
    let sim = Sim::with(config);
    let (cache, clock) = with_clock(&sim, Config { max_bytes: Some(64 << 12), ..Config::default() });
    (0..32).for_each(|n| lone(&cache, n));
    sim.fail(Call::Register, 1, 1, Fault::Memlock);
    lone(&cache, 32);
    let stats = cache.stats();
    assert_eq!((stats.budget_lowered, stats.register_failures), (1, 0), "evicted and tried again");
    assert_eq!(stats.budget_bytes, 32 << 12);
    // From now on the cache makes room by itself, at what the system let pass.
    (40..90).for_each(|n| lone(&cache, n));
    let stats = cache.stats();
    assert_eq!((stats.budget_lowered, stats.bytes_registered_peak), (1, 33 << 12), "{stats:?}");
    clock.0.fetch_add(60 * SECOND, Ordering::Relaxed);
    (100..200).for_each(|n| lone(&cache, n));
    assert_eq!(cache.stats().budget_bytes, 64 << 12, "others gave back what they took");
    assert_eq!(cache.stats().bytes_registered, 64 << 12);
}

#[test]
fn a_learnt_budget_never_refuses_by_itself() {
    let (cache, _) = with_clock(&Sim::new(), Config { max_bytes: Some(64 << 12), ..Config::default() });
    let held: Vec<_> = (0..8).map(|n| get(&cache, n * 8, 1)).collect();
    cache.0.provider.fail(Call::Register, 1, 1, Fault::Memory);
    // SAFETY: the simulated device touches no memory.
    unsafe { cache.acquire(at(1000), PAGE_SIZE, Access::READ) }.expect_err("all is held, the system refuses");
    assert_eq!(cache.stats().budget_bytes, 8 << 12);
    drop(get(&cache, 1000, 1)); // the system lets it pass now
    assert_eq!(held.len(), 8);
}

#[test]
fn what_is_old_goes_unless_it_is_held() {
    let config = Config { max_age: Some(Duration::from_secs(10)), ..Config::default() };
    let (cache, clock) = with_clock(&Sim::new(), config);
    let held = get(&cache, 0, 1);
    lone(&cache, 1);
    clock.0.store(9 * SECOND, Ordering::Relaxed);
    lone(&cache, 2);
    lone(&cache, 1); // use does not keep it
    assert_eq!(cache.expire_old(), 0);
    clock.0.store(11 * SECOND, Ordering::Relaxed);
    assert_eq!(cache.expire_old(), 1);
    drop(held);
    assert_eq!((cache.expire_old(), cache.stats().regions_live), (1, 1));
    clock.0.store(20 * SECOND, Ordering::Relaxed);
    assert_eq!((cache.expire_old(), cache.stats().expired, cache.stats().bytes_registered), (1, 3, 0));
}

#[test]
fn registers_from_the_use_that_was_set() {
    let cache = cache_with(&Sim::new(), Config { register_after: 3, ..Config::default() });
    // SAFETY: the simulated device touches no memory.
    let ask = |page| unsafe { cache.acquire_reused(at(page), PAGE_SIZE, Access::READ) }.unwrap().is_some();
    assert_eq!([ask(0), ask(8), ask(0), ask(0), ask(0), ask(8)], [false, false, false, true, true, false]);
    let stats = cache.stats();
    assert_eq!((stats.copied, stats.registrations, stats.hits), (4, 1, 1));
    // Memory that changed is other memory.
    cache.notifier().invalidate(pages(0, 1), EventKind::Unmap);
    assert!(!ask(0));
}

#[test]
fn the_kernels_share_is_estimated_from_what_the_provider_says() {
    let mut config = SimConfig::default();
    (config.caps.kernel_bytes_per_page, config.caps.kernel_bytes_per_region) = (16, 100);
    let cache = cache_with(&Sim::with(config), Config::default());
    drop(get(&cache, 0, 10));
    drop(get(&cache, 100, 1));
    assert_eq!(cache.stats().kernel_bytes_estimate, 11 * 16 + 2 * 100);
}

/// What the policy is told that memory costs, by region.
#[test]
fn eviction_compares_what_registering_again_costs() {
    #[derive(Debug)]
    struct Slow(Mutex<u64>, Arc<Clock>);
    let clock = Arc::new(Clock::default());
    let slow = Arc::new(Slow(Mutex::new(0), clock.clone()));
    let sim = Sim::new();
    let told = slow.clone();
    sim.on_step(move |step, _| {
        if step == crate::sim::Step::BeforePin {
            told.1.0.fetch_add(*told.0.lock().unwrap(), Ordering::Relaxed);
        }
    });
    let cache = Cache::new(sim, Arc::new(Told), clock, Config::default()).unwrap();
    let cost = |ns: u64, page: usize| {
        *slow.0.lock().unwrap() = ns;
        drop(get(&cache, page, 1));
        cache.0.state().expected_cost_ns(1)
    };
    assert_eq!(cost(900_000, 0), 900_000, "cold is all that is known");
    cache.shrink(0);
    assert_eq!(cost(20_000, 0), 20_000, "its pages were there");
    assert_eq!(cost(900_000, 8), 20_000, "new memory tells nothing of registering again");
}
