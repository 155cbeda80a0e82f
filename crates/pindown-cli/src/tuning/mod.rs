//! `pindown trace`, `replay` and `advise`: how much to keep, found out from what programs do.

mod advise;
mod load;
mod replay;
mod trace;

pub(crate) use advise::{Args as AdviseArgs, run as advise};
pub(crate) use replay::{Args as ReplayArgs, run as replay};
pub(crate) use trace::{Args as TraceArgs, run as trace};
