//! [`Options`]: how regions are made.

/// How memory stays reachable for the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Paging {
    /// Pages are pinned when they are registered. A monitor keeps the cache coherent.
    #[default]
    Pinned,
    /// On-demand paging: the device follows the page table, so regions are coherent by themselves
    /// and no monitor is needed. First touches by the device fault: see
    /// [`Verbs::prefetch`](super::Verbs::prefetch). `IBV_ACCESS_ON_DEMAND`, `ibv_reg_mr(3)`.
    OnDemand,
    /// On-demand paging with one region over the whole address space for local access; requests
    /// with remote access get explicit regions, since a peer must not reach everything.
    Implicit,
    /// The first that the device offers of: implicit, on-demand, pinned.
    Auto,
}

/// How [`Verbs`](super::Verbs) registers. `Default` is pinned regions, cached as other
/// registration caches do.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// How memory stays reachable.
    pub paging: Paging,
    /// Regions allow memory windows to be bound ([`rc::Grant`](super::rc::Grant)): a peer's rkey
    /// can then be ended while the region itself stays cached.
    pub memory_windows: bool,
}

impl Options {
    /// The same with this paging.
    #[must_use]
    pub fn paging(mut self, paging: Paging) -> Self {
        self.paging = paging;
        self
    }
    /// The same with [`memory_windows`](Self::memory_windows) set.
    #[must_use]
    pub fn memory_windows(mut self) -> Self {
        self.memory_windows = true;
        self
    }
}

/// How the process's registrations and `fork(2)` get on (`ibv_is_fork_initialized(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForkState {
    /// The kernel copies pinned pages for the child at fork (Linux 5.12, rdma-core 35): nothing to do.
    Unneeded,
    /// `ibv_fork_init(3)` was called: pinned ranges are `MADV_DONTFORK`, which splits mappings.
    Enabled,
    /// A fork may move pinned pages away from the parent: call `ibv_fork_init(3)` first, or do not
    /// fork while regions exist.
    Disabled,
    /// rdma-core before 35 does not say.
    Unknown,
}

impl ForkState {
    pub(super) fn from_raw(raw: Option<u32>) -> Self {
        match raw {
            Some(0) => Self::Disabled,
            Some(1) => Self::Enabled,
            Some(2) => Self::Unneeded,
            _ => Self::Unknown,
        }
    }
}
