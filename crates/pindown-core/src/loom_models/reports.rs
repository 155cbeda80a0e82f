//! Reports: the pending set and the generation word.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::check;
use crate::pending::{Pending, Taken};
use crate::{EventKind, Notifier, PageRange};

fn range(first: u64, pages: u64) -> PageRange {
    PageRange::from_pages(first, pages).unwrap()
}

fn take(set: &Pending) -> Vec<Taken> {
    let mut all = vec![];
    set.take(|t| all.push(t));
    all
}

fn covers(taken: &[Taken], page: u64) -> bool {
    taken.iter().any(|t| match t {
        Taken::Everything => true,
        Taken::Range(r, _) => r.contains(range(page, 1)),
    })
}

/// Two push (next to each other, or apart, or too many), one takes: nothing is lost.
fn pushes(first: &'static [u64], second: &'static [u64]) -> impl Fn() + Sync + Send + 'static {
    move || {
        let set = Arc::new(Pending::new());
        let threads: Vec<_> = [first, second]
            .into_iter()
            .map(|pages| {
                let set = set.clone();
                thread::spawn(move || pages.iter().for_each(|p| _ = set.push(range(*p, 1), EventKind::Unmap)))
            })
            .collect();
        let mut taken = take(&set);
        threads.into_iter().for_each(|t| t.join().unwrap());
        taken.extend(take(&set));
        assert!(first.iter().chain(second).all(|page| covers(&taken, *page)), "{taken:?}");
        assert_eq!(take(&set), [], "taken once");
    }
}

#[test]
fn pushes_that_merge() {
    check(3, pushes(&[0, 1], &[1]));
}

#[test]
fn pushes_apart_and_overflowing() {
    check(3, pushes(&[0, 10], &[20]));
}

/// What a lookup does: the word, even, before the set. A report that returned before the word was
/// read is in what is taken then, or was taken before.
#[test]
fn a_report_that_returned_is_taken_by_who_reads_the_word_next() {
    check(3, || {
        let (notifier, reported) = (Notifier::detached(), Arc::new(AtomicBool::new(false)));
        let reporter = {
            let (notifier, reported) = (notifier.clone(), reported.clone());
            thread::spawn(move || {
                notifier.invalidate(range(3, 1), EventKind::Unmap);
                reported.store(true, Ordering::Release);
            })
        };
        let first = notifier.generation();
        let done = reported.load(Ordering::Acquire);
        let before = notifier.take_detached();
        let now = notifier.generation();
        if done {
            assert!(!before.is_empty(), "it had returned");
        }
        if before.is_empty() {
            // Not taken: then the word moved past what was read first, at the latest by the end.
            reporter.join().unwrap();
            assert_ne!(notifier.generation(), first);
            assert_eq!(notifier.take_detached().len(), 1);
        } else {
            reporter.join().unwrap();
        }
        assert!(now == first || now == first + 2);
    });
}
