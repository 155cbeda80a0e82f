//! `libpindown_ucx.so`: pindown's events for UCX's registration cache.
//!
//! ```console
//! $ LD_PRELOAD=libpindown_ucx.so mpirun --mca pml ucx ./program
//! ```
//!
//! UCX has no check point: it believes its cache until an event tells it otherwise, and its own events
//! come from patched code, which other ways of changing memory pass by. The library stands in front of the two
//! functions by which UCX looks into the cache (`ucs_rcache_get`, and `ucs_pgtable_lookup` for its fast path).
//! Before each lookup it reads what pindown's monitor saw and dispatches it (`ucm_vm_munmap`), so that there
//! is no window between the change and the lookup; a fast lookup that had something to dispatch finds nothing. UCX's own hooks stay as they are.
//!
//! Memory that the monitor cannot watch, or would have to check at each use (memfd under userfaultfd), is
//! registered for one transfer: before the next lookup it is dispatched as changed.
//!
//! `PINDOWN_MONITOR` and `PINDOWN_SUMMARY` as in [`pindown_preload::settings`]. Checked with UCX 1.13 and
//! 1.18. A UCX that was loaded with `RTLD_DEEPBIND`, or linked statically, does not pass here.

mod feed;
pub mod sys;
