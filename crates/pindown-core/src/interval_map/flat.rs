//! [`FlatTable`]: the table as most lookups see it.

use std::ptr::NonNull;
use std::sync::Arc;

use super::directory::{CHUNK_PAGES, CHUNKS, Chunk};
use super::entry::{Entry, Want};
use super::{Found, Table};

/// A flat table, reached by one pointer.
#[derive(Debug)]
pub(crate) struct FlatTable {
    base: NonNull<Chunk>,
    /// Keeps the chunks.
    table: Arc<Table>,
}

// SAFETY: the pointer leads to atomics that `table`, which is `Send + Sync`, owns.
unsafe impl Send for FlatTable {}
// SAFETY: as above.
unsafe impl Sync for FlatTable {}

impl FlatTable {
    /// `None`: the table is a radix. (A model's always is; models shall go the same way all the same.)
    pub(crate) fn new(table: Arc<Table>) -> Option<Self> {
        let base = if cfg!(loom) { Some(NonNull::dangling()) } else { table.directory.flat_base() };
        Some(Self { base: base?, table })
    }

    #[inline(always)]
    pub(crate) fn view(&self) -> View<'_> {
        View { base: self.base, table: &self.table }
    }
}

/// The pointer, once loaded.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    base: NonNull<Chunk>,
    table: &'a Table,
}

impl<'a> View<'a> {
    #[inline(always)]
    fn chunk(self, number: u64) -> Option<&'a Chunk> {
        if cfg!(loom) {
            return self.table.directory.chunk(number);
        }
        assert!((number as usize) < CHUNKS);
        // SAFETY: `base` is the start of the `CHUNKS` chunks of a flat directory, which `table` keeps.
        Some(unsafe { self.base.add(number as usize).as_ref() })
    }

    /// The entry that serves `want`, if it is the one of the page or, where there is no leaf, of the
    /// chunk: [`Table::find`] looks at both.
    #[inline(always)]
    pub(crate) fn find(self, want: Want) -> Option<Found<'a>> {
        let chunk = self.chunk(want.page / CHUNK_PAGES)?;
        let (at, entry, serves) = match chunk.leaf() {
            Some(leaf) => {
                let at = leaf.entry(want.page);
                let entry = Entry::load(at);
                (at, entry, entry.serves(want))
            }
            None => {
                let entry = Entry::load(&chunk.whole);
                (&chunk.whole, entry, entry.chunk_serves(want))
            }
        };
        serves.then_some(Found { at, entry })
    }
}
