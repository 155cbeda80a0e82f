//! The Rust in `docs/`, as tests.

#[cfg(feature = "io-uring")]
#[doc = include_str!("../../../docs/io-uring.md")]
struct IoUring;

#[cfg(feature = "verbs")]
#[doc = include_str!("../../../docs/rust-verbs.md")]
struct RustVerbs;
