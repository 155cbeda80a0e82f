//! Holds against whoever deregisters: the code of `hold`, without the cache around it.

use loom::sync::Arc;
use loom::thread;

use super::device::{DeviceProvider, Pinned};
use super::{check, check_without};
use crate::hold::{Held, NewRegion, Registry, Slab, State, ThreadRecord};
use crate::sync::{AtomicU64, FenceAt, Ordering, full_fence};
use crate::{Access, PageRange};

/// One region, index 0, and two entries that may name it.
struct World {
    slab: Slab<DeviceProvider>,
    registry: &'static Registry,
    entries: [AtomicU64; 2],
}

const WORD: u64 = 7;

fn region(pinned: &'static Pinned) -> NewRegion<DeviceProvider> {
    NewRegion {
        range: PageRange::from_pages(0, 1).unwrap(),
        access: Access::READ,
        state: State::Live,
        key: pinned,
        mr: pinned,
        stamp: None,
        subscribed: false,
        zoned: false,
        at_once: false,
        now: 0,
    }
}

impl World {
    fn new() -> Arc<Self> {
        let registry: &'static Registry = Box::leak(Box::new(Registry::new()));
        let world = Self {
            slab: Slab::new(std::sync::Arc::new(super::device::ModelHost { slots: true })),
            registry,
            entries: [AtomicU64::new(0), AtomicU64::new(0)],
        };
        world.insert(0);
        Arc::new(world)
    }

    fn insert(&self, entry: usize) {
        self.slab.fill(0, region(Pinned::new(0)));
        self.entries[entry].store(WORD, Ordering::Release);
    }

    fn get(&self, record: Option<&'static ThreadRecord>, entry: usize) -> Option<Held<DeviceProvider>> {
        let at = &self.entries[entry];
        let seen = at.load(Ordering::Acquire);
        if seen == 0 { None } else { Held::try_new(record, self.slab.get(0)?, at, seen) }
    }

    fn get_and_use(&self, record: Option<&'static ThreadRecord>, entry: usize) {
        if let Some(held) = self.get(record, entry) {
            held.key().transfer();
        }
    }

    fn unlink(&self, entry: usize) {
        self.entries[entry].store(0, Ordering::Release);
    }

    /// As the reaper does; whether it is gone.
    fn reap(&self) -> bool {
        full_fence(FenceAt::Retire);
        let (mut held, region) = (false, self.slab.get(0).unwrap());
        self.registry.scan(|tag| held |= tag == region.tag());
        if held || region.is_counted() {
            return false;
        }
        // SAFETY: unlinked, fenced, scanned. That this suffices is what is being checked.
        let mr = unsafe { self.slab.take(0) }.expect("deregistered once");
        mr.deregister();
        region.set_state(State::Free);
        true
    }

    /// After all holders are done: it goes now if it did not before.
    fn reap_rest(&self, gone: bool) {
        assert!(gone || self.reap(), "leaked");
    }
}

/// Readers on records of their own (or counting) against one that deregisters.
fn readers(n: usize, slots: bool) -> impl Fn() + Sync + Send + 'static {
    move || {
        let world = World::new();
        let threads: Vec<_> = (0..n)
            .map(|_| {
                let world = world.clone();
                thread::spawn(move || {
                    let record = slots.then(|| world.registry.adopt());
                    world.get_and_use(record, 0);
                    record.map(Registry::park)
                })
            })
            .collect();
        world.unlink(0);
        let gone = world.reap();
        threads.into_iter().for_each(|t| _ = t.join().unwrap());
        world.reap_rest(gone);
    }
}

#[test]
fn slot_one_reader() {
    check(4, readers(1, true));
}

#[test]
fn slot_two_readers() {
    check(3, readers(2, true));
}

#[test]
fn counted_two_readers() {
    check(3, readers(2, false));
}

#[test]
#[should_panic]
fn fails_without_the_fence_after_the_slot() {
    check_without(FenceAt::Slot, 4, readers(1, true));
}

#[test]
#[should_panic]
fn fails_without_the_fence_after_the_count() {
    check_without(FenceAt::Count, 4, readers(1, false));
}

#[test]
#[should_panic]
fn fails_without_the_fence_before_the_scan() {
    check_without(FenceAt::Retire, 4, readers(1, true));
}

#[test]
#[should_panic]
fn fails_without_the_fence_before_the_count_is_read() {
    check_without(FenceAt::Retire, 4, readers(1, false));
}

/// Taken here, used and put there, while a reader and the reaper run.
#[test]
fn put_on_another_thread() {
    check(3, || {
        let world = World::new();
        let held = world.get(Some(world.registry.adopt()), 0).unwrap();
        let remote = thread::spawn(move || {
            held.key().transfer();
            drop(held);
        });
        let reader = {
            let world = world.clone();
            thread::spawn(move || world.get_and_use(Some(world.registry.adopt()), 0))
        };
        world.unlink(0);
        let gone = world.reap();
        remote.join().unwrap();
        reader.join().unwrap();
        world.reap_rest(gone);
    });
}

/// A clone outlives the hold it was made of.
#[test]
fn a_clone_on_another_thread() {
    check(3, || {
        let world = World::new();
        let held = world.get(Some(world.registry.adopt()), 0).unwrap();
        let remote = thread::spawn(move || {
            let clone = held.clone();
            drop(held);
            clone.key().transfer();
        });
        world.unlink(0);
        let gone = world.reap();
        remote.join().unwrap();
        world.reap_rest(gone);
    });
}

/// More holds than slots: the second is counted.
#[test]
fn more_holds_than_slots() {
    check(3, || {
        let world = World::new();
        let reader = {
            let world = world.clone();
            thread::spawn(move || {
                let record = Some(world.registry.adopt());
                let first = world.get(record, 0);
                let second = world.get(record, 0);
                drop(first);
                if let Some(held) = second {
                    held.key().transfer();
                }
            })
        };
        world.unlink(0);
        let gone = world.reap();
        reader.join().unwrap();
        world.reap_rest(gone);
    });
}

/// The index is used again for another range while a late getter may still publish it.
#[test]
fn recycled_index() {
    check(3, || {
        let world = World::new();
        let reader = {
            let world = world.clone();
            thread::spawn(move || {
                let record = Some(world.registry.adopt());
                world.get_and_use(record, 0);
                world.get_and_use(record, 1);
            })
        };
        world.unlink(0);
        let mut gone = world.reap();
        if gone {
            world.insert(1);
            world.unlink(1);
            gone = world.reap();
        }
        reader.join().unwrap();
        world.reap_rest(gone);
    });
}

/// A thread exits while what it took is still held elsewhere; another adopts its record.
#[test]
fn recycled_record() {
    check(3, || {
        let world = World::new();
        let first = {
            let world = world.clone();
            thread::spawn(move || {
                let record = world.registry.adopt();
                let held = world.get(Some(record), 0);
                Registry::park(record);
                held
            })
        };
        let second = {
            let world = world.clone();
            thread::spawn(move || {
                let record = world.registry.adopt();
                world.get_and_use(Some(record), 0);
                Registry::park(record);
            })
        };
        let held = first.join().unwrap();
        world.unlink(0);
        let gone = world.reap();
        if let Some(held) = held {
            assert!(!gone);
            held.key().transfer();
        }
        second.join().unwrap();
        world.reap_rest(gone);
    });
}
