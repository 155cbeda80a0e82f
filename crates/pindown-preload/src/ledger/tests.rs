//! With the manual monitor: what is told, and to whom.

use std::sync::atomic::{AtomicU64, Ordering};

use pindown::monitor::Manual;
use pindown::{Coverage, Delivery, EventKind};

use super::*;

fn pages(first: u64, count: u64) -> PageRange {
    PageRange::from_pages(first, count).unwrap()
}

fn ledger() -> Ledger {
    let notifier = Notifier::detached();
    let monitor = Arc::new(Manual::new());
    monitor.start(notifier.clone()).unwrap();
    Ledger::with(monitor, notifier)
}

fn look(ledger: &Ledger, range: PageRange) -> (Found, Vec<PageRange>) {
    let mut told = Vec::new();
    let found = ledger.look(range, &mut |r| told.push(r));
    (found, told)
}

fn watch(ledger: &Ledger, range: PageRange, keeping: Keeping) -> bool {
    ledger.watch(range, keeping, &mut |_| panic!("nothing changed")).is_ok()
}

#[test]
fn a_change_is_told_once_with_the_whole_of_what_it_touches() {
    let l = ledger();
    assert_eq!(look(&l, pages(10, 1)), (Found::Unknown, vec![]), "nobody watches it yet");
    assert!(watch(&l, pages(10, 10), Keeping::Reported) && watch(&l, pages(100, 10), Keeping::Reported));
    assert_eq!(look(&l, pages(12, 3)), (Found::Watched, vec![]));
    assert_eq!(look(&l, pages(15, 10)).0, Found::Unknown, "the end of it is not watched");
    l.notifier.invalidate(pages(19, 5), EventKind::Unmap);
    assert_eq!(look(&l, pages(100, 1)), (Found::Watched, vec![pages(10, 10)]));
    assert_eq!(look(&l, pages(10, 1)), (Found::Unknown, vec![]), "told already, and not watched any more");
    assert!(watch(&l, pages(10, 10), Keeping::Reported));
    assert_eq!(look(&l, pages(10, 10)), (Found::Watched, vec![]));
}

#[test]
fn a_change_that_nobody_looked_for_is_told_by_the_next_watch() {
    let l = ledger();
    assert!(watch(&l, pages(10, 10), Keeping::Reported));
    l.notifier.invalidate(pages(10, 1), EventKind::Unmap);
    let mut told = Vec::new();
    l.watch(pages(10, 10), Keeping::Reported, &mut |r| told.push(r)).unwrap();
    assert_eq!(told, [pages(10, 10)]);
    assert_eq!(look(&l, pages(10, 10)), (Found::Watched, vec![]));
}

#[test]
fn what_is_lost_is_everything() {
    let l = ledger();
    assert!(watch(&l, pages(10, 10), Keeping::Reported));
    l.notifier.lost();
    let (found, told) = look(&l, pages(10, 1));
    assert_eq!((found, told.last()), (Found::Unknown, Some(&PageRange::everything())));
    assert!(watch(&l, pages(10, 10), Keeping::Reported));
    let mut told = Vec::new();
    l.forget(&mut |r| told.push(r));
    assert_eq!(told, [pages(10, 10), PageRange::everything()]);
    assert_eq!(look(&l, pages(10, 1)).0, Found::Unknown);
}

/// A monitor whose ranges have to be checked, and which counts subscriptions.
#[derive(Debug, Default)]
struct Checking {
    version: AtomicU64,
    subscribed: AtomicU64,
}

impl Monitor for Checking {
    fn name(&self) -> &'static str {
        "checking"
    }
    fn coverage(&self) -> Coverage {
        Coverage::default()
    }
    fn delivery(&self) -> Delivery {
        Delivery::OnDemand
    }
    fn start(&self, _: Notifier) -> Result<(), MonitorError> {
        Ok(())
    }
    fn subscribe(&self, _: PageRange, _: Access) -> Result<Subscription, MonitorError> {
        self.subscribed.fetch_add(1, Ordering::Relaxed);
        Ok(Subscription::Checked(pindown::Stamp([self.version.load(Ordering::Relaxed), 0, 0, 0])))
    }
    fn unsubscribe(&self, _: PageRange) {
        self.subscribed.fetch_sub(1, Ordering::Relaxed);
    }
    fn validate(&self, _: PageRange, stamp: pindown::Stamp) -> Validity {
        match stamp.0[0] == self.version.load(Ordering::Relaxed) {
            true => Validity::Valid,
            false => Validity::Changed,
        }
    }
    fn stop(&self) {}
}

#[test]
fn checked_ranges_are_asked_about_at_each_look_and_subscriptions_balance() {
    let monitor = Arc::new(Checking::default());
    let subscribed = || monitor.subscribed.load(Ordering::Relaxed);
    let l = Ledger::with(monitor.clone(), Notifier::detached());
    assert!(!watch(&l, pages(1, 1), Keeping::Reported), "this engine has no place to check");
    assert_eq!(subscribed(), 0);
    assert!(watch(&l, pages(1, 4), Keeping::Checked) && watch(&l, pages(1, 4), Keeping::Checked));
    assert_eq!(subscribed(), 1, "two users, one subscription");
    assert_eq!(look(&l, pages(2, 1)), (Found::Watched, vec![]));
    monitor.version.store(1, Ordering::Relaxed);
    assert_eq!(look(&l, pages(50, 1)), (Found::Unknown, vec![]), "another range's business");
    let mut told = Vec::new();
    l.watch(pages(1, 4), Keeping::Checked, &mut |r| told.push(r)).unwrap();
    assert_eq!(told[0], pages(1, 4), "a second user must not hide the change from the first");
    monitor.version.store(2, Ordering::Relaxed);
    let (found, told) = look(&l, pages(2, 1));
    assert_eq!((found, told[0], subscribed()), (Found::Unknown, pages(1, 4), 0));
    assert!(watch(&l, pages(1, 4), Keeping::Checked) && watch(&l, pages(1, 4), Keeping::Checked));
    l.unwatch(pages(1, 4));
    assert_eq!(look(&l, pages(1, 4)).0, Found::Watched, "one user is left");
    l.unwatch(pages(1, 4));
    assert_eq!(subscribed(), 0);
}
