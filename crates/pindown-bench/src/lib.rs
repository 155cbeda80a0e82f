//! Micro-benchmarks of registration caches.
//!
//! A [`Subject`] is a cache, or the floor under all caches ([`Floor`]). Each figure of [`FIGURES`] is
//! measured by a process of its own for each subject ([`serve`]), which prepares once and then
//! measures one round whenever it is told to, so that the rounds of all subjects can be run in turn.
//! The same code drives every subject: the same addresses in the same order, on the same processors.

mod figure;
mod floor;
mod kinds;
mod serve;
mod subject;
mod sys;
mod workload;

pub use figure::{FIGURES, Figure, Kind, Unit, figure};
pub use floor::Floor;
pub use serve::serve;
pub use subject::{Pindown, Settings, Subject};
