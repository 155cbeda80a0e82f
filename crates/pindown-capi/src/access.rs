//! Access rights in C.

// Constants for the header; Rust has `Access`.
#![allow(dead_code)]

use pindown::Access;

use crate::failure::{Failure, Result};

/// The device reads (sends from the memory). Always allowed, hence zero.
pub const PINDOWN_READ: u32 = 0;
/// The local device may write (receive, RDMA READ into, READ_FIXED).
pub const PINDOWN_LOCAL_WRITE: u32 = 1;
/// A peer may read. Such memory is never registered beyond its pages; see docs/remote-access.md.
pub const PINDOWN_REMOTE_READ: u32 = 2;
/// A peer may write.
pub const PINDOWN_REMOTE_WRITE: u32 = 4;
/// A peer may do atomics.
pub const PINDOWN_REMOTE_ATOMIC: u32 = 8;
/// The device may reorder its memory accesses.
pub const PINDOWN_RELAXED_ORDERING: u32 = 16;

#[inline(always)]
pub(crate) fn access(bits: u32) -> Result<Access> {
    let known = u8::try_from(bits).ok().and_then(Access::from_bits);
    known.ok_or_else(|| Failure::invalid(format!("access {bits:#x} has bits that no PINDOWN_* right names")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_those_of_rust() {
        let named = [
            (PINDOWN_READ, Access::READ),
            (PINDOWN_LOCAL_WRITE, Access::LOCAL_WRITE),
            (PINDOWN_REMOTE_READ, Access::REMOTE_READ),
            (PINDOWN_REMOTE_WRITE, Access::REMOTE_WRITE),
            (PINDOWN_REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
            (PINDOWN_RELAXED_ORDERING, Access::RELAXED_ORDERING),
        ];
        named.into_iter().for_each(|(bits, right)| assert_eq!(access(bits).unwrap(), right));
        assert!(access(32).is_err() && access(256).is_err() && access(u32::MAX).is_err());
    }
}
