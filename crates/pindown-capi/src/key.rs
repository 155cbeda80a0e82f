//! `pindown_key`: what goes into a work request.

/// What goes into a work request. Which members mean something depends on the provider; the others are 0.
/// Valid while the registration that it came with is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct pindown_key {
    /// Verbs: for this process's own work requests (ibv_sge.lkey).
    pub lkey: u32,
    /// Verbs: for a peer's requests (wr.rdma.rkey). Whoever knows it reaches all of the registration.
    pub rkey: u32,
    /// io_uring: the SQE's buf_index.
    pub buf_index: u32,
    /// 0.
    pub reserved: u32,
    /// A provider of your own: whatever its register_memory wrote.
    pub user: u64,
}
