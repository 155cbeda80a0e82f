//! Expiry of what is not used.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use pindown_core::{Cache, Provider};

/// Marks time in the cache, and expires what was not used since a mark that is old enough.
#[derive(Debug)]
pub(super) struct Idle {
    after: Duration,
    marks: VecDeque<(Instant, u64)>,
}

impl Idle {
    pub(super) fn new(after: Duration) -> Self {
        Self { after, marks: VecDeque::new() }
    }

    pub(super) fn tick<P: Provider>(&mut self, cache: &Cache<P>, now: Instant) {
        let mut old_enough = None;
        while let Some(&(at, mark)) = self.marks.front().filter(|(at, _)| now - *at >= self.after) {
            old_enough = Some((at, mark));
            self.marks.pop_front();
        }
        if let Some((_, mark)) = old_enough {
            cache.expire_unused_since(mark);
        }
        self.marks.push_back((now, cache.mark()));
    }
}
