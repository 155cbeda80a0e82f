//! Replays traces of registration requests against eviction policies and budgets.
//!
//! The simulator drives the very policies and the very use clock of `pindown-core`, so what it
//! predicts is what the cache does, but for widening and for time. Beside them stands what no
//! policy can beat ([`bound`]).

pub mod advise;
pub mod bound;
pub mod read;
pub mod report;
mod rng;
mod sim;
pub mod suite;
mod sweep;
mod workload;

pub use sim::{Budget, Run, simulate, simulate_with};
pub use sweep::{Curves, default_budgets};
pub use workload::{CostModel, Object, Workload};
