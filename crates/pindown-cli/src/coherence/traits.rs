//! [`Traits`]: what kinds of memory have in common, so that an event can say where it makes sense.

/// A set of properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits(u32);

#[rustfmt::skip]
impl Traits {
    pub(crate) const NONE: Self = Self(0);
    /// Writes are the process's own.
    pub(crate) const PRIVATE: Self = Self(1);
    /// Writes are seen by all who map it.
    pub(crate) const SHARED: Self = Self(1 << 1);
    /// No file beneath.
    pub(crate) const ANON: Self = Self(1 << 2);
    /// Shared memory pages beneath (tmpfs, memfd, SysV).
    pub(crate) const SHMEM: Self = Self(1 << 3);
    /// A file whose descriptor the process keeps open.
    pub(crate) const FILE: Self = Self(1 << 4);
    /// That file is on a disk.
    pub(crate) const DISK: Self = Self(1 << 5);
    /// hugetlb pages.
    pub(crate) const HUGE: Self = Self(1 << 6);
    /// Transparent huge pages.
    pub(crate) const THP: Self = Self(1 << 7);
    /// Mapped read-only after it was registered.
    pub(crate) const READ_ONLY: Self = Self(1 << 8);
    /// A thread's stack.
    pub(crate) const STACK: Self = Self(1 << 9);
    /// The stack of a thread that the experiment may end.
    pub(crate) const THREAD: Self = Self(1 << 10);
    /// Above the program break's former place.
    pub(crate) const BRK: Self = Self(1 << 11);
    /// Inside a block of malloc.
    pub(crate) const MALLOC: Self = Self(1 << 12);
    /// That block has a mapping of its own.
    pub(crate) const MALLOC_MMAP: Self = Self(1 << 13);
    /// A System V segment.
    pub(crate) const SYSV: Self = Self(1 << 14);

    /// Both sets together.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is in it.
    pub(crate) const fn all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is in it.
    pub(crate) const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
