//! [`Region`] and [`Key`].

use crate::sys::verbs::Mr;

/// What a work request names a region by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// For this process's own work requests (`ibv_sge.lkey`).
    pub lkey: u32,
    /// For a peer's requests (`wr.rdma.rkey`). Whoever knows it can reach the whole region for as
    /// long as it is registered.
    pub rkey: u32,
}

/// A registration of [`Verbs`](super::Verbs). Not deregistered on drop.
#[derive(Debug)]
pub struct Region(Kind);

#[derive(Debug)]
enum Kind {
    /// A memory region of its own.
    Own(Mr),
    /// Part of the implicit region.
    Shared(Key),
}

impl Region {
    pub(super) fn own(mr: Mr) -> Self {
        Self(Kind::Own(mr))
    }

    pub(super) fn shared(key: Key) -> Self {
        Self(Kind::Shared(key))
    }

    pub(super) fn key(&self) -> Key {
        match &self.0 {
            Kind::Own(mr) => Key { lkey: mr.lkey(), rkey: mr.rkey() },
            Kind::Shared(key) => *key,
        }
    }

    pub(super) fn into_own(self) -> Option<Mr> {
        match self.0 {
            Kind::Own(mr) => Some(mr),
            Kind::Shared(_) => None,
        }
    }
}
