//! UCX's functions: those in front of which the library stands, and the one that it calls.

mod exports;
mod tables;
mod ucx;

pub use exports::*;
