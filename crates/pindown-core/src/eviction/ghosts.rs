//! [`Ghosts`]: what is remembered of evicted registrations.

use super::UseWord;
use super::clock::mix;

/// Ids of evicted memory and when it was last used: a direct-mapped table, so a collision forgets
/// the older. 16 bytes an entry.
#[derive(Debug, Default)]
pub(super) struct Ghosts {
    entries: Vec<Ghost>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ghost {
    id: u64,
    last: UseWord,
}

impl Ghosts {
    /// Makes the table about four times as large as `live`, up to 16 MiB; what it holds moves along.
    pub(super) fn reserve(&mut self, live: usize) {
        let wanted = (live * 4).next_power_of_two().clamp(64, 1 << 20);
        if wanted <= self.entries.len() {
            return;
        }
        let old = std::mem::replace(&mut self.entries, vec![Ghost::default(); wanted]);
        for ghost in old.into_iter().filter(|g| g.id != 0) {
            self.put(ghost.id, ghost.last);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Ghost>()
    }

    fn at(&self, id: u64) -> usize {
        mix(id) as usize & (self.entries.len() - 1)
    }

    pub(super) fn put(&mut self, id: u64, last: UseWord) {
        if !self.entries.is_empty() {
            let at = self.at(id);
            self.entries[at] = Ghost { id, last };
        }
    }

    /// The last word of `id`, which is forgotten.
    pub(super) fn take(&mut self, id: u64) -> Option<UseWord> {
        if self.entries.is_empty() {
            return None;
        }
        let at = self.at(id);
        let found = (self.entries[at].id == id && id != 0).then_some(self.entries[at].last);
        if found.is_some() {
            self.entries[at] = Ghost::default();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_most_of_four_times_the_live_and_across_growth() {
        let mut ghosts = Ghosts::default();
        ghosts.reserve(16);
        (1..=32).for_each(|id| ghosts.put(id, UseWord::first(id)));
        ghosts.reserve(256);
        (33..=512).for_each(|id| ghosts.put(id, UseWord::first(id)));
        let kept = (1..=512).filter(|id| ghosts.take(*id) == Some(UseWord::first(*id))).count();
        assert!(kept > 350, "{kept}");
        assert_eq!(ghosts.take(511), None, "taken once");
    }
}
