//! `libpindown_verbs.so`: pindown's cache under programs that call `ibv_reg_mr(3)` themselves.
//!
//! ```console
//! $ LD_PRELOAD=libpindown_verbs.so PINDOWN_SUMMARY=1 ./program
//! ```
//!
//! Registrations for local access come from a cache, one a protection domain, that a monitor keeps
//! coherent; `ibv_dereg_mr` then puts rather than deregisters. Everything else is passed on to libibverbs
//! as it is: **a registration with remote access is really deregistered when the program says so**, so
//! that no peer reaches its memory afterwards.
//!
//! | the program | gets |
//! |---|---|
//! | `ibv_reg_mr`, `ibv_reg_mr_iova2` with no right but local write and relaxed ordering | the cache |
//! | with remote rights, memory windows, on-demand paging, or a flag that is not understood | the real one |
//! | with an I/O address that is not the buffer's, or no length | the real one |
//! | `ibv_reg_mr_iova`, `ibv_reg_dmabuf_mr` and all else | untouched |
//! | `ibv_rereg_mr` of a cached registration | a real registration of its own behind the same pointer |
//! | `ibv_dealloc_pd`, `ibv_close_device` | first what is cached there is deregistered |
//!
//! What differs: a local key reaches whole pages, and neighbours that the cache registered with them, so a
//! work request just outside the program's own registration does not fail; `ibv_mr.handle` is not the
//! kernel's, so `ibv_import_mr(3)` fails for it.
//!
//! `PINDOWN_MONITOR` and `PINDOWN_SUMMARY` as in [`pindown_preload::settings`]; `PINDOWN_TRACE=FILE` records
//! what is asked of the cache ([`pindown::trace`]). Symbols found by `dlsym(3)` in a handle of libibverbs
//! are libibverbs' own: such programs are not served.

mod asked;
mod figures;
pub mod sys;
