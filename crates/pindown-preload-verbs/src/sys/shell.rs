//! [`Shell`]: the `struct ibv_mr` that a program gets for a registration of the cache.

use std::ffi::{c_int, c_void};

use pindown::Registration;
use pindown::provider::verbs::Verbs;

use super::abi::{IbvMr, IbvPd};

/// Each user of one registration gets a pointer of its own. What libibverbs has behind an `ibv_mr` (its
/// type, 0 for a plain one, and the access) is there too, with room for what may come.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Shell {
    pub(super) mr: IbvMr,
    kind: u32,
    pub(super) access: c_int,
    _room: [u64; 8],
}

/// What a shell stands for.
#[derive(Debug)]
pub(super) enum Behind {
    /// Held until the program deregisters it.
    Cached(Registration<Verbs>),
    /// After `ibv_rereg_mr`: libibverbs' own, at this address.
    Private(usize),
}

impl Shell {
    pub(super) fn new(
        pd: *mut IbvPd,
        at: (*mut c_void, usize),
        access: u32,
        held: &Registration<Verbs>,
    ) -> Box<Self> {
        let key = held.key();
        let mr = IbvMr {
            // SAFETY: the program passes a live domain to ibv_reg_mr.
            context: unsafe { (*pd).context },
            pd,
            addr: at.0,
            length: at.1,
            handle: u32::MAX,
            lkey: key.lkey,
            rkey: key.rkey,
        };
        Box::new(Self { mr, kind: 0, access: access as c_int, _room: [0; 8] })
    }
}
