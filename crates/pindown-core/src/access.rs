//! [`Access`]: what a registration lets the device, and its peers, do.

/// Class bit that every request wants and that single-use regions lack, so nothing finds them.
pub(crate) const SERVES: u64 = 1 << 6;

bitflags::bitflags! {
    /// What a registration allows. Local reading by the device is always allowed,
    /// so the empty set is a read-only (send-side) registration.
    ///
    /// The names follow `ibv_reg_mr(3)`'s `IBV_ACCESS_*`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
    pub struct Access: u8 {
        /// The local device may write (receive, RDMA READ into, READ_FIXED).
        const LOCAL_WRITE = 1 << 0;
        /// A peer may read.
        const REMOTE_READ = 1 << 1;
        /// A peer may write.
        const REMOTE_WRITE = 1 << 2;
        /// A peer may do atomics.
        const REMOTE_ATOMIC = 1 << 3;
        /// The device may reorder its memory accesses (`IBV_ACCESS_RELAXED_ORDERING`).
        /// A region that relaxes never serves a request that does not.
        const RELAXED_ORDERING = 1 << 4;
    }
}

impl Access {
    /// Device reads only.
    pub const READ: Self = Self::empty();
    /// Device reads and writes.
    pub const READ_WRITE: Self = Self::LOCAL_WRITE;
    /// Every right that a peer can be given.
    pub const REMOTE: Self = Self::REMOTE_READ.union(Self::REMOTE_WRITE).union(Self::REMOTE_ATOMIC);

    /// Whether a peer can reach the memory. Such registrations are never widened
    /// beyond the pages asked for.
    #[inline]
    pub fn is_remote(self) -> bool {
        self.intersects(Self::REMOTE)
    }

    /// Whether the device or a peer may change the memory.
    #[inline]
    pub fn is_write(self) -> bool {
        self.intersects(Self::LOCAL_WRITE.union(Self::REMOTE_WRITE).union(Self::REMOTE_ATOMIC))
    }

    /// Whether a region with these rights may serve a request for `wanted`.
    #[inline]
    pub fn serves(self, wanted: Self) -> bool {
        self.class() & wanted.class() == wanted.class()
    }

    /// The rights as bits of which more is always better: relaxed ordering is
    /// stored inverted, since strict serves both.
    #[inline]
    pub(crate) fn class(self) -> u64 {
        u64::from(self.bits() ^ Self::RELAXED_ORDERING.bits()) | SERVES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_serves_less_and_strict_serves_relaxed() {
        assert!(Access::READ_WRITE.serves(Access::READ));
        assert!(!Access::READ.serves(Access::READ_WRITE));
        assert!(Access::READ_WRITE.serves(Access::READ_WRITE | Access::RELAXED_ORDERING));
        assert!(!(Access::READ_WRITE | Access::RELAXED_ORDERING).serves(Access::READ_WRITE));
        assert!(!Access::REMOTE_READ.serves(Access::REMOTE_WRITE));
    }
}
