//! Providers: one file each.

#[cfg(feature = "io-uring")]
pub mod io_uring;
/// A simulated provider.
pub use pindown_core::sim;
#[cfg(feature = "verbs")]
pub mod verbs;
