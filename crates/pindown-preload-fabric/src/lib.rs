//! `libpindown_fabric.so`: pindown as libfabric's memory monitor.
//!
//! ```console
//! $ LD_PRELOAD=libpindown_fabric.so mpirun --mca pml cm --mca mtl ofi ./program
//! ```
//!
//! libfabric keeps its own cache of registrations and takes a monitor from outside ("import",
//! `<rdma/fi_ext.h>`). This one is told of every change by pindown's monitor (eBPF or userfaultfd) instead
//! of by patched code. libfabric asks it at every hit, so a changed range is registered anew at its next use,
//! however it was changed; ranges that cannot be watched are not cached.
//!
//! Preloaded, the library imports the monitor when the program first opens a fabric, before another one
//! (Open MPI has one) can. A program can do so itself: call `pindown_fabric_import()` (0, or a negative
//! errno) before its first `fi_domain`, and keep `FI_MR_CACHE_MONITOR` unset.
//!
//! | environment | |
//! |---|---|
//! | `FI_MR_CACHE_MONITOR` | `disabled`: left alone. Other words are removed when preloaded, since libfabric would prefer them |
//! | `PINDOWN_MONITOR`, `PINDOWN_SUMMARY` | as in [`pindown_preload::settings`] |
//!
//! Where no monitor starts, the program is told on standard error and keeps libfabric's own. libfabric 1.13
//! and newer; checked with 1.17 and 2.1.

mod session;
mod stale;
pub mod sys;
