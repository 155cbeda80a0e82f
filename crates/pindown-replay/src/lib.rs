//! Replays traces of registration requests against eviction policies and budgets.
//!
//! The simulator drives the very policies and the very use clock of `pindown-core`, so what it
//! predicts is what the cache does, but for widening and for time. Beside them stands what no
//! policy can beat ([`bound`]).

pub mod bound;
mod rng;
mod sim;
pub mod suite;
mod workload;

pub use sim::{Budget, Run, simulate};
pub use workload::{CostModel, Object, Workload};
