//! One registration for all who want it at a time.

use loom::sync::Arc;
use loom::thread;

use super::cache::{acquire, cache, end};
use super::check;
use super::device::DeviceFault;
use crate::cache::flight::{Flight, Landed};
use crate::{Access, AcquireError, PageRange};

fn flight() -> Arc<Flight> {
    Arc::new(Flight::new(PageRange::from_pages(0, 1).unwrap(), Access::READ, true))
}

#[test]
fn everyone_hears_of_the_landing() {
    check(3, || {
        let flight = flight();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let flight = flight.clone();
                thread::spawn(move || flight.wait())
            })
            .collect();
        flight.land(Landed::Failed(AcquireError::Closed));
        flight.land(Landed::Published); // the first end counts
        for waiter in waiters {
            assert!(matches!(waiter.join().unwrap(), Landed::Failed(AcquireError::Closed)));
        }
    });
}

#[test]
fn misses_at_a_time_register_once() {
    check(2, || {
        let (cache, device) = cache(true, &[]);
        let other = {
            let cache = cache.clone();
            thread::spawn(move || acquire(&cache, 0).unwrap().key().transfer())
        };
        acquire(&cache, 0).unwrap().key().transfer();
        other.join().unwrap();
        assert_eq!(device.registered(), 1);
        end(cache, &device);
    });
}

/// One is refused: whoever waited hears of it, whoever came later registers.
#[test]
fn a_refusal_reaches_who_waits() {
    check(2, || {
        let (cache, device) = cache(true, &[DeviceFault::Refuse]);
        let other = {
            let cache = cache.clone();
            thread::spawn(move || acquire(&cache, 0).is_ok())
        };
        let here = acquire(&cache, 0).is_ok();
        let there = other.join().unwrap();
        assert!(!(here && there), "somebody was refused");
        assert_eq!(device.registered(), u64::from(here || there));
        end(cache, &device);
    });
}

#[test]
fn a_panic_reaches_who_waits() {
    check(2, || {
        let (cache, device) = cache(true, &[DeviceFault::Panic]);
        let attempt = |cache: &crate::Cache<_>| {
            let acquired = std::panic::AssertUnwindSafe(|| acquire(cache, 0).map(drop));
            std::panic::catch_unwind(acquired)
        };
        let other = {
            let cache = cache.clone();
            thread::spawn(move || attempt(&cache))
        };
        let both = [attempt(&cache), other.join().unwrap()];
        assert_eq!(both.iter().filter(|r| r.is_err()).count(), 1, "one panicked");
        let told = both.iter().flatten().all(|r| matches!(r, Ok(()) | Err(AcquireError::Panicked)));
        assert!(told, "{both:?}");
        end(cache, &device);
    });
}
