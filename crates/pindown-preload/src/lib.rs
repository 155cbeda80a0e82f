//! What the libraries `libpindown_verbs.so`, `libpindown_fabric.so` and `libpindown_ucx.so` share.
//!
//! | module | what |
//! |---|---|
//! | [`ledger`] | which ranges an engine's own cache has registered, and which of them changed |
//! | [`settings`] | the environment variables |
//! | [`sys`] | symbols of the real libraries, the process's end |

pub mod ledger;
pub mod settings;
pub mod sys;
