//! [`Rule`]: the rankings among which the adaptive policy chooses.

/// What a ranking looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Requests since the last use.
    pub(super) age: u64,
    /// Requests between the last two uses.
    pub(super) interval: Option<u64>,
    /// What keeping it takes (pages, or 1 when registrations are what is short) for each nanosecond
    /// that getting it back takes.
    pub(super) size_per_ns: f64,
    /// It is among the newest sixty-fourth of what was inserted.
    pub(super) is_new: bool,
}

/// A ranking: the highest score goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The longest unused. Right when the working set moves on.
    Lru,
    /// The longest expected wait until the next use, for its price: the last interval repeats, or
    /// is the age if that is more already. What was never used again goes first, except the newest.
    Reuse,
    /// The same without an exception for the newest: right when nothing new comes back soon.
    ReuseStrict,
    /// The last use plus the interval is when it comes back: the farthest goes. Right for loops.
    Periodic,
}

impl Rule {
    pub(super) const ALL: [Self; 4] = [Self::Lru, Self::Reuse, Self::ReuseStrict, Self::Periodic];

    #[inline]
    pub(super) fn score(self, c: &Candidate) -> f64 {
        /// Above all waits that are known, below the protection's sign.
        const UNKNOWN: f64 = 1e15;
        let age = c.age as f64;
        if self == Self::Lru {
            return age;
        }
        if self == Self::Reuse && c.is_new {
            return age - 1e30;
        }
        let wait = match c.interval {
            Some(interval) if self == Self::Periodic && c.age <= interval => (interval - c.age) as f64,
            None if self == Self::Periodic => UNKNOWN - age,
            Some(interval) => age.max(interval as f64),
            None => UNKNOWN + age,
        };
        wait * c.size_per_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(age: u64, interval: Option<u64>) -> Candidate {
        Candidate { age, interval, size_per_ns: 1e-3, is_new: false }
    }

    #[test]
    fn what_never_came_back_goes_before_what_waits_longest() {
        let score = |c| Rule::Reuse.score(&c);
        assert!(score(candidate(5, None)) > score(candidate(1000, Some(90))));
        assert!(score(candidate(5, Some(900))) > score(candidate(800, Some(90))));
        assert!(score(candidate(5, None)) > score(Candidate { is_new: true, ..candidate(9, None) }));
        assert!(
            Rule::ReuseStrict.score(&Candidate { is_new: true, ..candidate(9, None) })
                > score(candidate(5, None))
        );
    }

    #[test]
    fn large_and_cheap_goes_before_small_and_dear() {
        let large = Candidate { size_per_ns: 64e-3, ..candidate(10, Some(100)) };
        let dear = Candidate { size_per_ns: 1.0 / 9e6, ..candidate(10, Some(100)) };
        assert!(Rule::Reuse.score(&large) > Rule::Reuse.score(&dear));
        assert_eq!(Rule::Lru.score(&large), Rule::Lru.score(&dear));
    }
}
