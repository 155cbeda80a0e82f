//! Grace periods over a faked table of threads.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pindown_core::PageRange;

use super::*;

/// tid -> (user time, where).
#[derive(Default)]
struct Fake {
    table: RefCell<BTreeMap<u32, (u64, Where)>>,
    unlistable: std::cell::Cell<bool>,
}

const IN_MADVISE: Where = Where::Call(libc::SYS_madvise);

impl Fake {
    fn of(threads: &[(u32, u64, Where)]) -> Self {
        let fake = Self::default();
        threads.iter().for_each(|&(tid, user, at)| fake.set(tid, user, at));
        fake
    }
    fn set(&self, tid: u32, user_ns: u64, at: Where) {
        self.table.borrow_mut().insert(tid, (user_ns, at));
    }
    fn exit(&self, tid: u32) {
        self.table.borrow_mut().remove(&tid);
    }
}

impl Threads for Fake {
    fn list(&self) -> Option<Vec<u32>> {
        (!self.unlistable.get()).then(|| self.table.borrow().keys().copied().collect())
    }
    fn user_ns(&self, tid: u32) -> Option<u64> {
        self.table.borrow().get(&tid).map(|t| t.0)
    }
    fn location(&self, tid: u32) -> Where {
        self.table.borrow().get(&tid).map_or(Where::Gone, |t| t.1)
    }
    fn me(&self) -> u32 {
        1
    }
}

fn pages(first: u64) -> PageRange {
    PageRange::from_pages(first, 4).unwrap()
}

/// An event on pages 100.., with the given threads.
fn begun(fake: &Fake) -> (GraceSet, GracePeriods) {
    let set = GraceSet::new();
    set.add(pages(100));
    let mut grace = GracePeriods::default();
    grace.advance(&set, fake);
    (set, grace)
}

#[test]
fn alone_it_is_over_at_once() {
    let fake = Fake::of(&[(1, 5, Where::Running), (2, 0, Where::Call(libc::SYS_futex))]);
    assert!(!begun(&fake).0.contains(pages(100)));
}

#[test]
fn every_kind_of_evidence_and_no_other() {
    let seen = [
        (6, Where::Running), // its user time moved
        (5, Where::Call(libc::SYS_read)),
        (5, Where::Call(libc::SYS_io_uring_enter)),
        (5, Where::Fault),
        (5, Where::Gone),
        (5, Where::Worker(Wchan::Idle)),
        (0, IN_MADVISE), // its id was given to a new thread
    ];
    let not_seen = [
        (5, IN_MADVISE),
        (5, Where::Call(libc::SYS_process_madvise)),
        (5, Where::Call(libc::SYS_madvise | 0x4000_0000)),
        (5, Where::Running),
        (5, Where::Worker(Wchan::Other)),
        (5, Where::Unknown),
    ];
    let over = |&(user, at): &(u64, Where)| {
        let fake = Fake::of(&[(1, 9, Where::Running), (2, 5, IN_MADVISE)]);
        let (set, mut grace) = begun(&fake);
        assert!(set.contains(pages(100)), "thread 2 is in madvise");
        fake.set(2, user, at);
        grace.advance(&set, &fake);
        !set.contains(pages(100))
    };
    assert!(seen.iter().all(over));
    assert!(!not_seen.iter().any(over));
}

#[test]
fn one_thread_in_madvise_holds_back_its_range_only() {
    let fake = Fake::of(&[(1, 9, Where::Running), (2, 5, IN_MADVISE), (3, 5, Where::Running)]);
    let (set, mut grace) = begun(&fake);
    fake.set(3, 6, Where::Running);
    for _ in 0..100 {
        assert!(grace.advance(&set, &fake));
    }
    assert!(set.contains(pages(100)) && !set.contains(pages(200)));
    fake.exit(2);
    assert!(!grace.advance(&set, &fake));
    assert!(!set.contains(pages(100)));
}

#[test]
fn threads_that_came_later_do_not_matter() {
    let fake = Fake::of(&[(1, 9, Where::Running), (2, 5, Where::Running)]);
    let (set, mut grace) = begun(&fake);
    fake.set(3, 0, IN_MADVISE);
    fake.set(2, 6, Where::Running);
    grace.advance(&set, &fake);
    assert!(!set.contains(pages(100)));
}

#[test]
fn an_event_after_the_snapshot_waits_for_the_next() {
    let fake = Fake::of(&[(1, 9, Where::Running), (2, 5, Where::Running)]);
    let (set, mut grace) = begun(&fake); // snapshot: thread 2 at 5
    fake.set(2, 6, IN_MADVISE); // it has been outside since ...
    set.add(pages(100)); // ... and this is what it does now
    grace.advance(&set, &fake);
    assert!(set.contains(pages(100)), "the second event has its own grace period");
    grace.advance(&set, &fake);
    assert!(set.contains(pages(100)), "and thread 2 is in the call");
    fake.set(2, 7, Where::Running);
    grace.advance(&set, &fake);
    assert!(!set.contains(pages(100)));
}

#[test]
fn without_a_complete_list_nothing_is_over() {
    let fake = Fake::of(&[(1, 9, Where::Running)]);
    fake.unlistable.set(true);
    let (set, mut grace) = begun(&fake);
    assert!(grace.advance(&set, &fake) && set.contains(pages(100)));
    fake.unlistable.set(false);
    assert!(!grace.advance(&set, &fake));
}
