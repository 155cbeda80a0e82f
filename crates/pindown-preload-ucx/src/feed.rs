//! [`Feed`]: what is dispatched to UCX before a lookup.
//!
//! UCX may merge what neighbours in its cache registered, so a lookup in one range can find a
//! registration that reaches into another. Therefore each range that was registered without being
//! watched is dispatched before the next lookup, wherever that is.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pindown::PageRange;
use pindown_preload::ledger::{Found, Keeping, Ledger};

/// Dispatching is done by whoever looks; the functions below take it as an argument.
pub(crate) type Dispatch<'a> = &'a mut dyn FnMut(PageRange);

/// Lock order: the ledger's, then `unwatched`. UCX's handlers run under the ledger's; UCX calls us with its
/// context's lock and its page table's read lock at most, which its handlers only try to take.
#[derive(Debug)]
pub(crate) struct Feed {
    ledger: Ledger,
    unwatched: Mutex<Unwatched>,
    counts: Counts,
}

/// What UCX's cache may hold that nobody watches.
#[derive(Debug, Default)]
struct Unwatched {
    /// Being registered now: dispatched too, and kept.
    under_way: Vec<PageRange>,
    /// Registered.
    registered: Vec<PageRange>,
}

#[derive(Debug, Default)]
struct Counts {
    lookups: AtomicU64,
    dispatched: AtomicU64,
    watched: AtomicU64,
    refused: AtomicU64,
}

/// A lookup that may register.
#[derive(Debug)]
pub(crate) struct Get {
    range: PageRange,
    is_watched: bool,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Feed {
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self { ledger, unwatched: Mutex::default(), counts: Counts::default() }
    }

    /// Before a lookup that finds or fails. `false`: it must fail. UCX has looked at its queue of events
    /// already, and a cache that puts events there would find what was just dispatched.
    pub(crate) fn before_find(&self, range: PageRange, dispatch: Dispatch<'_>) -> bool {
        let mut is_clean = true;
        let dispatch = &mut |r| {
            is_clean = false;
            dispatch(r);
        };
        if self.look(range, dispatch) == Found::Unknown {
            self.told(range, dispatch);
        }
        is_clean
    }

    /// Before a lookup that registers what it does not find.
    pub(crate) fn before_get(&self, range: PageRange, dispatch: Dispatch<'_>) -> Get {
        let mut is_watched = self.look(range, dispatch) == Found::Watched;
        if !is_watched {
            let told = &mut |r| self.told(r, dispatch);
            is_watched = self.ledger.watch(range, Keeping::Reported, told).is_ok();
            count(if is_watched { &self.counts.watched } else { &self.counts.refused });
            // Nobody watched what may be registered there from before.
            self.told(range, dispatch);
        }
        if !is_watched {
            self.unwatched().under_way.push(range);
        }
        Get { range, is_watched }
    }

    /// After it.
    pub(crate) fn after_get(&self, get: &Get) {
        if get.is_watched {
            return;
        }
        let mut unwatched = self.unwatched();
        if let Some(at) = unwatched.under_way.iter().position(|r| *r == get.range) {
            unwatched.under_way.swap_remove(at);
        }
        unwatched.registered.push(get.range);
    }

    fn look(&self, range: PageRange, dispatch: Dispatch<'_>) -> Found {
        count(&self.counts.lookups);
        let found = self.ledger.look(range, &mut |r| self.told(r, dispatch));
        let unwatched: Vec<_> = {
            let mut unwatched = self.unwatched();
            let registered = std::mem::take(&mut unwatched.registered);
            registered.into_iter().chain(unwatched.under_way.iter().copied()).collect()
        };
        unwatched.into_iter().for_each(|r| self.told(r, dispatch));
        if self.ledger.is_overfull() {
            self.ledger.forget(&mut |r| self.told(r, dispatch));
            return Found::Unknown;
        }
        found
    }

    fn told(&self, range: PageRange, dispatch: Dispatch<'_>) {
        count(&self.counts.dispatched);
        dispatch(range);
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.ledger.is_forked()
    }

    fn unwatched(&self) -> MutexGuard<'_, Unwatched> {
        self.unwatched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counts { lookups, dispatched, watched, refused } = &self.counts;
        write!(
            f,
            "lookups {}, ranges watched {}, not cacheable {}, dispatched as changed {}; monitor: {}",
            of(lookups),
            of(watched),
            of(refused),
            of(dispatched),
            self.ledger.monitor().name()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pindown::monitor::{Manual, Uncached};
    use pindown::{Monitor, Notifier};

    use super::*;

    fn feed(monitor: Arc<dyn Monitor>) -> Feed {
        let notifier = Notifier::detached();
        monitor.start(notifier.clone()).unwrap();
        Feed::new(Ledger::with(monitor, notifier))
    }

    fn pages(first: u64, count: u64) -> PageRange {
        PageRange::from_pages(first, count).unwrap()
    }

    fn get(feed: &Feed, range: PageRange) -> Vec<PageRange> {
        let mut told = Vec::new();
        let get = feed.before_get(range, &mut |r| told.push(r));
        feed.after_get(&get);
        told
    }

    fn find(feed: &Feed, range: PageRange) -> Vec<PageRange> {
        let mut told = Vec::new();
        let is_clean = feed.before_find(range, &mut |r| told.push(r));
        assert_eq!(is_clean, told.is_empty(), "what was dispatched must not be found");
        told
    }

    #[test]
    fn a_change_is_dispatched_before_the_next_lookup_of_anything() {
        let monitor = Arc::new(Manual::new());
        let f = feed(monitor.clone());
        assert_eq!(get(&f, pages(10, 4)), [pages(10, 4)], "what is there from before is not trusted");
        assert!(get(&f, pages(10, 4)).is_empty() && find(&f, pages(11, 1)).is_empty());
        monitor.report(pages(13, 9));
        assert_eq!(find(&f, pages(50, 1))[0], pages(10, 4));
        assert_eq!(find(&f, pages(10, 1)), [pages(10, 1)], "nobody watches it now");
        assert_eq!(get(&f, pages(10, 4)), [pages(10, 4)]);
        assert!(find(&f, pages(10, 1)).is_empty());
    }

    #[test]
    fn what_cannot_be_watched_is_dispatched_before_any_other_lookup() {
        let f = feed(Arc::new(Uncached::new()));
        let under_way = f.before_get(pages(10, 4), &mut |_| {});
        assert!(find(&f, pages(90, 1)).contains(&pages(10, 4)), "another thread, meanwhile");
        assert!(find(&f, pages(90, 1)).contains(&pages(10, 4)), "still under way");
        f.after_get(&under_way);
        assert!(find(&f, pages(90, 1)).contains(&pages(10, 4)));
        assert!(!find(&f, pages(90, 1)).contains(&pages(10, 4)), "once: it is in the cache no more");
    }
}
