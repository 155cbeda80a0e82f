//! [`Watches`]: who asked to be told when a region ends.

use super::{Cache, Inner, Registration};
use crate::Provider;

/// How a watched region ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// Its memory changed: transfers through it move the old pages.
    Stale,
    /// It was put and evicted, flushed or used up without a change, and the device let go of it.
    Deregistered,
}

/// Watched regions by index, and watches that ended and were not fetched. Under the cache's lock.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    on: Vec<(u32, u64)>,
    ended: Vec<(u64, Ended)>,
}

impl Watches {
    /// The region at `index` ended; each watch is told once.
    pub(crate) fn end(&mut self, index: u32, how: Ended) {
        let ended = &mut self.ended;
        self.on.retain(|&(watched, id)| {
            if watched == index {
                ended.push((id, how));
            }
            watched != index
        });
    }

    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }
}

impl<P: Provider> Inner<P> {
    fn watch(&self, registration: &Registration<P>, id: u64) -> bool {
        if self.drained.is_forked() {
            return false;
        }
        // The registration is a hold, so the record stays this region's.
        let Some(index) = self.slab.index_of(registration.held().region()) else { return false };
        let mut state = self.drained_state();
        if registration.is_stale() {
            state.watches.ended.push((id, Ended::Stale));
            self.notifier.inbox().wake.wake();
        } else {
            state.watches.on.push((index, id));
        }
        true
    }
}

impl<P: Provider> Cache<P> {
    /// Has [`take_ended`](Self::take_ended) say, once, when `registration`'s region went stale or was
    /// deregistered. Does not hold it. `id` is the caller's. `false`: the registration is another
    /// cache's, or this is a forked child.
    pub fn watch(&self, registration: &Registration<P>, id: u64) -> bool {
        self.0.watch(registration, id)
    }

    /// Ends a watch. `false`: there is none of that id that has not ended.
    pub fn unwatch(&self, id: u64) -> bool {
        if self.0.drained.is_forked() {
            return false;
        }
        let mut state = self.0.state();
        let before = state.watches.on.len();
        state.watches.on.retain(|(_, other)| *other != id);
        before > state.watches.on.len()
    }

    /// The watches that ended since the last call. Changes are handled by [`drive`](Self::drive) at the
    /// latest: call this after it.
    pub fn take_ended(&self) -> Vec<(u64, Ended)> {
        if self.0.drained.is_forked() {
            return Vec::new();
        }
        std::mem::take(&mut self.0.state().watches.ended)
    }
}
