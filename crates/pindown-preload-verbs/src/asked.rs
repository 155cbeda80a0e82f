//! Which registrations the cache may serve.

use pindown::Access;

// <infiniband/verbs.h>
const LOCAL_WRITE: u32 = 1;
const REMOTE: u32 = 2 | 4 | 8; // write, read, atomic
const RELAXED_ORDERING: u32 = 1 << 20;

/// Why a registration is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// A peer may reach it, until it is deregistered.
    Remote,
    /// A flag that the cache does not serve.
    Flags,
    /// An I/O address of its own, or no range at all.
    Range,
    /// No cache for this protection domain.
    NoCache,
    /// The cache could not: the real call says why.
    Refused,
}

impl Passed {
    pub(crate) const ALL: [Self; 5] = [Self::Remote, Self::Flags, Self::Range, Self::NoCache, Self::Refused];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Remote => "remote access",
            Self::Flags => "other flags",
            Self::Range => "an address of its own",
            Self::NoCache => "no cache",
            Self::Refused => "refused",
        }
    }
}

/// The rights to ask the cache for.
pub(crate) fn cacheable(addr: usize, length: usize, iova: u64, access: u32) -> Result<Access, Passed> {
    if access & REMOTE != 0 {
        return Err(Passed::Remote);
    }
    if access & !(LOCAL_WRITE | RELAXED_ORDERING) != 0 {
        return Err(Passed::Flags);
    }
    if iova != addr as u64 || addr == 0 || length == 0 {
        return Err(Passed::Range);
    }
    let mut rights = Access::READ;
    rights.set(Access::LOCAL_WRITE, access & LOCAL_WRITE != 0);
    rights.set(Access::RELAXED_ORDERING, access & RELAXED_ORDERING != 0);
    Ok(rights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_understood_is_served() {
        let of = |access| cacheable(0x1000, 10, 0x1000, access);
        assert_eq!(of(0), Ok(Access::READ));
        assert_eq!(of(1), Ok(Access::READ_WRITE));
        assert_eq!(of(1 | 1 << 20), Ok(Access::READ_WRITE | Access::RELAXED_ORDERING));
        for remote in [2, 4, 8, 1 | 2, 1 | 2 | 64] {
            assert_eq!(of(remote), Err(Passed::Remote));
        }
        // Windows, zero-based, on-demand, huge pages, and what is not invented yet.
        for flag in [16, 32, 64, 128, 1 << 9, 1 << 21, 1 << 31] {
            assert_eq!(of(1 | flag), Err(Passed::Flags), "{flag:#x}");
        }
        assert_eq!(cacheable(0x1000, 10, 0, 1), Err(Passed::Range));
        assert_eq!(cacheable(0, usize::MAX, 0, 1), Err(Passed::Range));
        assert_eq!(cacheable(0x1000, 0, 0x1000, 1), Err(Passed::Range));
    }
}
