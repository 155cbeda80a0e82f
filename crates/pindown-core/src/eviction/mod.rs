//! [`EvictionPolicy`]: which registration goes when there is no room.

mod adaptive;
mod clock;
mod cost;
mod ghosts;
mod lru;
mod rule;
mod s3fifo;
mod shadow;

pub use adaptive::Adaptive;
pub(crate) use clock::mix;
pub use clock::{UseClock, UseWord};
pub(crate) use cost::CostModel;
pub use lru::Lru;
pub use s3fifo::S3Fifo;

use std::fmt::Debug;

/// A registration that the cache has just published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// Its slot; stays its name until [`EvictionPolicy::removed`].
    pub region: u32,
    /// Length in pages.
    pub pages: u64,
    /// What registering it took, in nanoseconds: measured, or expected from the cost model.
    pub cost_ns: u64,
    /// What the same memory is recognised by when it comes back: its first page's number.
    pub id: u64,
}

/// Why a registration left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The policy chose it, or its budget ran out: the memory still exists.
    Evicted,
    /// Its memory changed or is gone, or another registration took its place.
    Invalidated,
}

/// What there is no more room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Bytes: what is large frees more.
    Bytes,
    /// Registrations (slots): each frees one.
    Regions,
}

/// What the cache knows of its registrations, for a policy that chooses.
pub trait Uses {
    /// When it was used, as the last hit that wrote it down left it.
    fn word(&self, region: u32) -> UseWord;
    /// Whether someone holds it: it cannot go now.
    fn held(&self, region: u32) -> bool;
    /// The time now, in the units of [`UseWord::stamp`].
    fn now(&self) -> u64;
    /// Why something must go.
    fn short_of(&self) -> Shortage {
        Shortage::Bytes
    }
}

/// Chooses what to give up. One file a policy.
///
/// Called on slow paths only, under the cache's lock; hits are seen through the words that they
/// write ([`UseClock::hit`]). Time is the number of requests ([`UseClock`]), never wall clock, so a
/// policy replays a trace exactly.
pub trait EvictionPolicy: Send + Debug {
    /// Name for people and the command line, e.g. `"lru"`.
    fn name(&self) -> &'static str;
    /// A registration was published at time `now`.
    fn inserted(&mut self, new: Inserted, now: u64);
    /// A registration left; `id` is its [`Inserted::id`], `last` its word. The slot may be named again by a later `inserted`.
    fn removed(&mut self, region: u32, id: u64, last: UseWord, why: Removal);
    /// The next to give up, or `None` if all are held. It stays in until the cache reports it
    /// `removed`; if the cache finds it held after all, [`Uses::held`] says so in the next call.
    fn victim(&mut self, uses: &dyn Uses) -> Option<u32>;
    /// The ids whose refreshed uses it wants to hear of by [`reused`](Self::reused), one in
    /// 2^this of all; `None`: none. May change at each [`victim`](Self::victim): tell it to
    /// [`UseClock::set_sampling`].
    fn sampling_shift(&self) -> Option<u32> {
        None
    }
    /// Bytes of what it remembers beside what is registered (evicted ids, simulations): bounded, however
    /// many registrations there are.
    fn arena_bytes(&self) -> usize {
        0
    }
    /// Uses of sampled ids since the last call, oldest first, as [`UseClock::take_samples`] gave them.
    fn reused(&mut self, ids: &[u64], now: u64) {
        let _ = (ids, now);
    }
}

/// The policies by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum PolicyKind {
    /// Chooses between rankings by what they would have cost ([`Adaptive`]).
    #[default]
    Adaptive,
    /// The least recently used goes first ([`Lru`]).
    Lru,
    /// Two queues; a scan passes through ([`S3Fifo`]).
    S3Fifo,
}

impl PolicyKind {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Adaptive, Self::Lru, Self::S3Fifo];

    /// A fresh policy of this kind.
    pub fn boxed(self) -> Box<dyn EvictionPolicy> {
        match self {
            Self::Adaptive => Box::new(Adaptive::default()),
            Self::Lru => Box::new(Lru::default()),
            Self::S3Fifo => Box::new(S3Fifo::default()),
        }
    }

    /// Name for people and the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Lru => "lru",
            Self::S3Fifo => "s3fifo",
        }
    }
}

impl std::str::FromStr for PolicyKind {
    type Err = UnknownPolicy;
    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.iter().find(|k| k.name() == name);
        found.copied().ok_or_else(|| UnknownPolicy { name: name.to_owned() })
    }
}

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no eviction policy is called {name:?}; there are {}", names())]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
}

fn names() -> String {
    PolicyKind::ALL.iter().map(|k| k.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
pub(crate) mod testing {
    //! A cache without memory: enough to drive a policy.
    use super::*;
    use std::collections::HashSet;

    #[derive(Default)]
    pub(crate) struct Table {
        pub(crate) words: Vec<UseWord>,
        pub(crate) held: HashSet<u32>,
        pub(crate) now: u64,
    }

    impl Uses for Table {
        fn word(&self, region: u32) -> UseWord {
            self.words[region as usize]
        }
        fn held(&self, region: u32) -> bool {
            self.held.contains(&region)
        }
        fn now(&self) -> u64 {
            self.now
        }
    }

    impl Table {
        pub(crate) fn insert(&mut self, policy: &mut dyn EvictionPolicy, region: u32) {
            self.now += 1;
            self.words.resize(self.words.len().max(region as usize + 1), UseWord::default());
            self.words[region as usize] = UseWord::first(self.now);
            let new = Inserted { region, pages: 1, cost_ns: 1000, id: u64::from(region) + 1 };
            policy.inserted(new, self.now);
        }
        pub(crate) fn hit(&mut self, region: u32) {
            self.now += 1;
            self.words[region as usize] = self.words[region as usize].used_at(self.now);
        }
        pub(crate) fn evict(&mut self, policy: &mut dyn EvictionPolicy) -> Option<u32> {
            let region = policy.victim(self)?;
            policy.removed(region, u64::from(region) + 1, self.words[region as usize], Removal::Evicted);
            Some(region)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Table;
    use super::*;

    #[test]
    fn names_parse_back_and_unknown_ones_list_what_exists() {
        for kind in PolicyKind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
            assert_eq!(kind.boxed().name(), kind.name());
        }
        let error = "mru".parse::<PolicyKind>().unwrap_err();
        assert!(error.to_string().contains("lru"), "{error}");
    }

    #[test]
    fn every_policy_spares_the_held_and_empties_the_rest() {
        for kind in PolicyKind::ALL {
            let (mut policy, mut table) = (kind.boxed(), Table::default());
            (0..200).for_each(|r| table.insert(&mut *policy, r));
            (0..200).filter(|r| r % 3 == 0).for_each(|r| _ = table.held.insert(r));
            let mut gone = Vec::new();
            while let Some(region) = table.evict(&mut *policy) {
                assert!(region % 3 != 0, "{kind:?} chose a held region");
                gone.push(region);
            }
            gone.sort_unstable();
            assert_eq!(gone, (0..200).filter(|r| r % 3 != 0).collect::<Vec<_>>(), "{kind:?}");
            table.held.clear();
            assert!(policy.victim(&table).is_some(), "{kind:?} forgot the regions that were held");
        }
    }

    #[test]
    fn every_policy_forgets_what_was_removed_and_takes_the_slot_again() {
        for kind in PolicyKind::ALL {
            let (mut policy, mut table) = (kind.boxed(), Table::default());
            (0..64).for_each(|r| table.insert(&mut *policy, r));
            (0..64).for_each(|r| {
                policy.removed(r, u64::from(r) + 1, table.words[r as usize], Removal::Invalidated)
            });
            assert_eq!(policy.victim(&table), None, "{kind:?}");
            table.insert(&mut *policy, 7);
            assert_eq!(table.evict(&mut *policy), Some(7), "{kind:?}");
            assert_eq!(policy.victim(&table), None, "{kind:?}");
        }
    }
}
