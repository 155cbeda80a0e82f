use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use super::*;

fn range(first_page: u64, pages: u64) -> PageRange {
    PageRange::from_pages(first_page, pages).unwrap()
}

fn register(sim: &Sim, range: PageRange) -> Result<SimMr, RegisterError> {
    // SAFETY: a simulated device does not touch memory.
    unsafe { sim.register(range, Access::READ) }
}

#[test]
fn only_remapped_pages_of_older_registrations_are_stale() {
    let sim = Sim::new();
    let old = register(&sim, range(10, 8)).unwrap();
    sim.remap(range(12, 2));
    let new = register(&sim, range(10, 8)).unwrap();
    assert_eq!(sim.stale_pages(sim.key(&old), range(10, 8)), Ok(2));
    assert_eq!(sim.stale_pages(sim.key(&new), range(10, 8)), Ok(0));
    assert_eq!(sim.stale_pages(sim.key(&old), range(14, 4)), Ok(0));
}

#[test]
fn misuse_is_in_the_books() {
    let sim = Sim::new();
    let mr = register(&sim, range(10, 2)).unwrap();
    let key = sim.key(&mr);
    let twin = SimMr { key, huge: false };
    assert_eq!(sim.transfer_write(key, 10), Err(Violation::NotWritable { id: 1 }));
    assert!(matches!(sim.transfer(key, 12), Err(Violation::OutOfRange { page: 12, .. })));
    assert!(matches!(sim.transfer(key, 9), Err(Violation::OutOfRange { page: 9, .. })));
    sim.deregister(mr).unwrap();
    assert_eq!(sim.transfer(key, 10), Err(Violation::UsedAfterDeregistration { id: 1 }));
    sim.deregister(twin).unwrap();
    let books = sim.books();
    assert_eq!(books.violations.len(), 5);
    assert_eq!((books.registered, books.deregistered, books.live), (1, 1, 0));
    assert!(!books.balanced());
}

#[test]
fn limits_are_enforced() {
    let mut config = SimConfig::default();
    config.caps.max_regions = 2;
    config.caps.max_bytes = 5 * 4096;
    config.caps.max_region_bytes = 4 * 4096;
    let sim = Sim::with(config);
    let hit = |r| match register(&sim, r) {
        Err(RegisterError::Limit { limit, value, .. }) => Some((limit, value)),
        _ => None,
    };
    assert_eq!(hit(range(0, 5)), Some((Limit::RegionBytes, Some(4 * 4096))));
    assert_eq!(hit(range(0, 4)), None);
    assert_eq!(hit(range(0, 2)), Some((Limit::Memory, Some(5 * 4096))));
    assert_eq!(hit(range(0, 1)), None);
    assert_eq!(hit(range(0, 1)), Some((Limit::Slots, Some(2))));
    assert_eq!(sim.books().register_failures, 3);
    assert_eq!(sim.live(), [range(0, 1), range(0, 4)]);
}

#[test]
fn faults_come_when_planned() {
    let sim = Sim::new();
    sim.fail(Call::Register, 2, 2, Fault::Busy);
    sim.fail(Call::Any, 1, 1, Fault::Memlock);
    let outcomes: Vec<_> = (0..5).map(|i| register(&sim, range(i, 1)).is_ok()).collect();
    assert_eq!(outcomes, [false, false, false, true, true]);
    sim.fail_every(Call::Register, 3, Fault::Io);
    let outcomes: Vec<_> = (0..6).map(|i| register(&sim, range(i, 1)).is_ok()).collect();
    assert_eq!(outcomes, [true, true, false, true, true, false]);
    sim.heal();
    sim.refuse(range(100, 10), Fault::Unsupported);
    assert!(matches!(register(&sim, range(95, 6)), Err(RegisterError::Unsupported { .. })));
    assert!(register(&sim, range(95, 5)).is_ok());
    assert!(sim.books().balanced());
}

#[test]
fn a_panic_leaves_the_books_readable() {
    let sim = Sim::new();
    sim.fail(Call::Register, 1, 1, Fault::Panic);
    assert!(catch_unwind(AssertUnwindSafe(|| register(&sim, range(0, 1)))).is_err());
    let mr = register(&sim, range(0, 1)).unwrap();
    sim.fail(Call::Deregister, 1, 1, Fault::Panic);
    assert!(catch_unwind(AssertUnwindSafe(|| sim.deregister(mr))).is_err());
    let books = sim.books();
    assert_eq!((books.register_failures, books.deregister_failures, books.live), (1, 1, 1));
}

/// A change between pinning and return is the race that the cache must notice.
#[test]
fn a_hook_can_change_memory_within_a_registration() {
    let sim = Sim::new();
    let other = sim.clone();
    sim.on_step(move |step, range| {
        if step == Step::AfterPin {
            other.remap(range);
        }
    });
    let mr = register(&sim, range(3, 1)).unwrap();
    assert!(sim.transfer(sim.key(&mr), 3).unwrap().is_stale());
}

#[test]
fn an_owned_one_refuses_other_threads() {
    let sim = Sim::with(SimConfig { owned: true, ..SimConfig::default() });
    assert_eq!(sim.affinity(), Affinity::OwnerThread(thread::current().id()));
    let mr = register(&sim, range(0, 1)).unwrap();
    let other = sim.clone();
    let mr = thread::spawn(move || {
        assert!(matches!(register(&other, range(1, 1)), Err(RegisterError::WrongThread)));
        other.deregister(mr).unwrap_err().mr
    });
    sim.deregister(mr.join().unwrap()).unwrap();
    assert!(sim.books().closed());
}

#[test]
fn calls_overlap() {
    let sim = Sim::with(SimConfig { register_latency: Duration::from_millis(2), ..SimConfig::default() });
    let (here, there) = mpsc::sync_channel::<()>(0);
    let met = Mutex::new(Some(here));
    let there = Mutex::new(there);
    // Each waits for the other inside its call: this ends only if both are in at once.
    sim.on_step(move |step, _| {
        if step == Step::BeforePin {
            let first = met.lock().unwrap().take();
            match first {
                Some(here) => here.send(()).unwrap(),
                None => there.lock().unwrap().recv().unwrap(),
            }
        }
    });
    thread::scope(|scope| {
        for page in 0..2 {
            let sim = &sim;
            scope.spawn(move || register(sim, range(page, 1)).unwrap());
        }
    });
    assert_eq!(sim.books().live, 2);
}
