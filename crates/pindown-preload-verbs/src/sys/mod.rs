//! The functions that the library puts in front of libibverbs', and what lies behind them.

mod abi;
mod caller;
mod domain;
mod exports;
mod process;
mod real;
mod shell;

pub use abi::{IbvContext, IbvMr, IbvPd};
pub use exports::*;
