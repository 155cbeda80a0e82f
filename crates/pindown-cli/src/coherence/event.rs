//! The events under test: what a row says, and all rows.

use std::io;

use super::acts;
use super::scene::Scene;
use super::traits::Traits;

/// Which part of the kernel's interface an event belongs to; tables are grouped by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Unmap,
    Move,
    Advise,
    File,
    SharedMemory,
    Allocator,
    Process,
    Harmless,
}

impl Group {
    pub(crate) const ALL: [Self; 8] = [
        Self::Unmap,
        Self::Move,
        Self::Advise,
        Self::File,
        Self::SharedMemory,
        Self::Allocator,
        Self::Process,
        Self::Harmless,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Unmap => "unmapped or mapped over",
            Self::Move => "moved or resized",
            Self::Advise => "given back with madvise",
            Self::File => "the file changed",
            Self::SharedMemory => "shared memory",
            Self::Allocator => "through the C library",
            Self::Process => "other processes",
            Self::Harmless => "must not matter",
        }
    }
}

type Act = fn(&mut Scene) -> io::Result<()>;

/// A row of the table: something that happens to memory.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    /// Name in tables and JSON.
    pub(crate) name: &'static str,
    pub(crate) group: Group,
    /// Memory must have all of these for the event to make sense.
    needs: Traits,
    /// And none of these.
    lacks: Traits,
    /// The name under which a monitor may waive it.
    pub(crate) waiver: Option<&'static str>,
    /// Happens before the memory is registered.
    pub(crate) prepare: Act,
    /// The event. An error means that the kernel refused it.
    pub(crate) act: Act,
}

impl Event {
    pub(crate) const fn new(group: Group, name: &'static str, act: Act) -> Self {
        let none = Traits::NONE;
        Self { name, group, needs: none, lacks: none, waiver: None, prepare: |_| Ok(()), act }
    }

    pub(crate) const fn on(self, needs: Traits) -> Self {
        Self { needs, ..self }
    }

    pub(crate) const fn not_on(self, lacks: Traits) -> Self {
        Self { lacks, ..self }
    }

    pub(crate) const fn waived_as(self, name: &'static str) -> Self {
        Self { waiver: Some(name), ..self }
    }

    pub(crate) const fn after(self, prepare: Act) -> Self {
        Self { prepare, ..self }
    }

    /// Whether it makes sense on memory with these traits.
    pub(crate) fn applies(&self, traits: Traits) -> bool {
        traits.all(self.needs) && !traits.any(self.lacks)
    }
}

/// All events, group by group.
pub(crate) fn events() -> impl Iterator<Item = &'static Event> {
    [
        acts::unmap::EVENTS,
        acts::remap::EVENTS,
        acts::advise::EVENTS,
        acts::file::EVENTS,
        acts::shared::EVENTS,
        acts::allocator::EVENTS,
        acts::process::EVENTS,
        acts::harmless::EVENTS,
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::super::mapping::MAPPINGS;
    use super::*;

    #[test]
    fn names_are_unique_and_every_row_is_used() {
        let mut names: Vec<_> = events().map(|e| e.name).chain(MAPPINGS.iter().map(|m| m.name)).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        for event in events() {
            assert!(MAPPINGS.iter().any(|m| event.applies(m.traits)), "{} applies nowhere", event.name);
        }
    }

    #[test]
    fn there_are_enough_cells_for_the_proof() {
        let cells = MAPPINGS.iter().flat_map(|m| events().filter(|e| e.applies(m.traits))).count();
        assert!(cells >= 400, "{cells}");
    }
}
