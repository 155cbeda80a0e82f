//! The whole cache: lookups and misses against changes, eviction and the reaper.

use std::sync::Arc as StdArc;
use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::device::{Device, DeviceFault, DeviceProvider, ModelHost};
use super::{check, check_without};
use crate::monitor::{Coverage, Delivery, Subscription};
use crate::sync::FenceAt;
use crate::{
    Access, AcquireError, Cache, Config, EventKind, Monitor, MonitorError, Notifier, PAGE_SIZE, PageRange,
    PolicyKind, Registration,
};

/// Covers everything; the model reports.
#[derive(Debug)]
struct Told;

impl Monitor for Told {
    fn name(&self) -> &'static str {
        "told"
    }
    fn coverage(&self) -> Coverage {
        Coverage::default()
    }
    fn delivery(&self) -> Delivery {
        Delivery::WhenTold
    }
    fn start(&self, _: Notifier) -> Result<(), MonitorError> {
        Ok(())
    }
    fn subscribe(&self, _: PageRange, _: Access) -> Result<Subscription, MonitorError> {
        Ok(Subscription::Events)
    }
    fn stop(&self) {}
}

pub(super) type Modelled = Cache<DeviceProvider>;
type Got = Result<Registration<DeviceProvider>, AcquireError>;

pub(super) fn cache(slots: bool, faults: &[DeviceFault]) -> (Modelled, StdArc<Device>) {
    cache_with(slots, faults, u64::MAX)
}

fn cache_with(slots: bool, faults: &[DeviceFault], max_regions: u64) -> (Modelled, StdArc<Device>) {
    let device = StdArc::new(Device::new(faults));
    let config = Config {
        widen: false,
        attempts: 2,
        policy: PolicyKind::Lru,
        max_regions: Some(max_regions),
        ..Config::default()
    };
    let host = StdArc::new(ModelHost { slots });
    let cache = Cache::new(DeviceProvider(device.clone()), StdArc::new(Told), host, config).unwrap();
    (cache, device)
}

fn at(page: usize) -> *const u8 {
    std::ptr::without_provenance(page * PAGE_SIZE)
}

pub(super) fn acquire(cache: &Modelled, page: usize) -> Got {
    // SAFETY: there is no device.
    unsafe { cache.acquire(at(page), PAGE_SIZE, Access::READ) }
}

fn lookup(cache: &Modelled, page: usize) -> Option<Registration<DeviceProvider>> {
    cache.lookup(at(page), PAGE_SIZE, Access::READ)
}

/// Nothing is held: all goes.
pub(super) fn end(cache: Modelled, device: &Device) {
    cache.close(Duration::ZERO).unwrap();
    assert_eq!(device.live(), 0);
}

/// A change, as its caller sees it: when this returns it has completed.
fn change(cache: &Modelled, device: &Device, done: &AtomicBool) {
    device.change();
    cache.notifier().invalidate(PageRange::from_pages(0, 1).unwrap(), EventKind::Unmap);
    done.store(true, Ordering::Release);
}

/// A request that begins after the change has completed gets what was registered after it.
fn request(cache: &Modelled, done: &AtomicBool, miss: bool) {
    let after = done.load(Ordering::Acquire);
    let got = if miss { Some(acquire(cache, 0).unwrap()) } else { lookup(cache, 0) };
    if let Some(got) = got {
        got.key().transfer();
        assert!(!after || got.key().version == 1, "stale");
    }
}

/// One requests while the other changes the memory and lets the old registration go.
fn change_against(slots: bool, cached: bool, miss: bool) -> impl Fn() + Sync + Send + 'static {
    move || {
        let (cache, device) = cache(slots, &[]);
        let done = Arc::new(AtomicBool::new(false));
        if cached {
            drop(acquire(&cache, 0).unwrap());
        }
        let other = {
            let (cache, done) = (cache.clone(), done.clone());
            thread::spawn(move || request(&cache, &done, miss))
        };
        change(&cache, &device, &done);
        cache.drive();
        request(&cache, &done, true);
        other.join().unwrap();
        end(cache, &device);
    }
}

#[test]
fn slot_hit_against_change_and_reap() {
    check(3, change_against(true, true, false));
}

#[test]
fn counted_hit_against_change_and_reap() {
    check(3, change_against(false, true, false));
}

/// A control that fails drops a cache while it unwinds, where loom panics again, which aborts: so
/// controls run in processes of their own.
fn must_fail(control: &str) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let name = format!("loom_models::cache::{control}");
    let output = command.args(["--exact", "--ignored", &name]).env("RUST_BACKTRACE", "0").output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let caught = ["Causality violation", "used after its deregistration", "stale"];
    assert!(!output.status.success() && caught.iter().any(|c| said.contains(c)), "{said}");
}

#[test]
#[ignore = "fails, and shall: run by fails_without_fences"]
fn control_no_fence_after_the_slot() {
    check_without(FenceAt::Slot, 3, change_against(true, true, false));
}

#[test]
#[ignore = "fails, and shall: run by fails_without_fences"]
fn control_no_fence_before_the_scan() {
    check_without(FenceAt::Retire, 3, change_against(true, true, false));
}

#[test]
#[ignore = "fails, and shall: run by fails_without_fences"]
fn control_no_fence_after_the_count() {
    check_without(FenceAt::Count, 3, change_against(false, true, false));
}

#[test]
fn fails_without_fences() {
    must_fail("control_no_fence_after_the_slot");
    must_fail("control_no_fence_before_the_scan");
    must_fail("control_no_fence_after_the_count");
}

#[test]
fn hit_or_miss_against_change() {
    check(3, change_against(true, true, true));
}

#[test]
fn registration_against_change() {
    check(3, change_against(true, false, true));
}

/// Room for one: the second request evicts the first, unless it is held.
#[test]
fn hit_against_eviction() {
    check(3, || {
        let (cache, device) = cache_with(true, &[], 1);
        drop(acquire(&cache, 0).unwrap());
        let other = {
            let cache = cache.clone();
            thread::spawn(move || {
                if let Some(got) = lookup(&cache, 0) {
                    got.key().transfer();
                }
            })
        };
        match acquire(&cache, 1) {
            Ok(got) => got.key().transfer(),
            Err(error) => assert!(matches!(error, AcquireError::Budget { .. })),
        }
        other.join().unwrap();
        assert!(device.live() <= 1);
        end(cache, &device);
    });
}

/// A monitor's reader: odd before the read (which lets the changing call return), even after it
/// has pushed. A request that begins in between waits.
#[test]
fn hit_against_a_reader_of_events() {
    check(3, || {
        let (cache, device) = cache(true, &[]);
        drop(acquire(&cache, 0).unwrap());
        let done = Arc::new(AtomicBool::new(false));
        let reader = {
            let (notifier, device, done) = (cache.notifier(), device.clone(), done.clone());
            thread::spawn(move || {
                notifier.begin();
                device.change();
                done.store(true, Ordering::Release); // the changing call returns here
                notifier.push(PageRange::from_pages(0, 1).unwrap(), EventKind::Unmap);
                notifier.end();
            })
        };
        request(&cache, &done, false);
        request(&cache, &done, true);
        reader.join().unwrap();
        end(cache, &device);
    });
}

/// Two drains at a time, of two reports: neither hides the other's.
#[test]
fn two_changes_and_a_hit() {
    check(3, || {
        let (cache, device) = cache(true, &[]);
        drop(acquire(&cache, 0).unwrap());
        let done = Arc::new(AtomicBool::new(false));
        let other = {
            let notifier = cache.notifier();
            thread::spawn(move || notifier.invalidate(PageRange::from_pages(2, 1).unwrap(), EventKind::Unmap))
        };
        change(&cache, &device, &done);
        request(&cache, &done, false);
        other.join().unwrap();
        request(&cache, &done, true);
        end(cache, &device);
    });
}
