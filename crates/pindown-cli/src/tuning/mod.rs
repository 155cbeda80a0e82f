//! `pindown trace`, `replay` and `advise`: how much to keep, found out from what programs do.

mod advise;
mod load;
mod replay;
mod trace;

pub(crate) use advise::{Args as AdviseArgs, run as advise};
pub(crate) use replay::{Args as ReplayArgs, run as replay};
pub(crate) use trace::{Args as TraceArgs, run as trace};

/// To standard output, whose reader may have seen enough (`| head`).
fn emit(text: &str) {
    use std::io::Write;
    _ = std::io::stdout().write_all(text.as_bytes());
}
