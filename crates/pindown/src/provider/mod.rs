//! Providers: one file each.

#[cfg(feature = "io-uring")]
pub mod io_uring;
