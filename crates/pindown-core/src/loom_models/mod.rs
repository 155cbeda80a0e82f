//! loom models: every interleaving (and every reordering that the memory model allows) of small
//! programs over the real code. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p pindown-core --release --lib loom_models`.
//!
//! Each model that must hold has a twin that must fail: without one of the fences.

mod device;

#[cfg(test)]
mod cache;
#[cfg(test)]
mod flights;
#[cfg(test)]
mod holds;
#[cfg(test)]
mod reports;

use std::cell::Cell;

use crate::sync::FenceAt;

thread_local! {
    /// loom runs all threads of a model on one.
    static DROPPED: Cell<Option<FenceAt>> = const { Cell::new(None) };
}

/// Whether the running model does without this fence.
pub(crate) fn is_dropped(at: FenceAt) -> bool {
    DROPPED.get() == Some(at)
}

/// Runs `model` in all ways that differ in at most `preemptions` preemptions.
#[cfg(test)]
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// Runs `model` without one fence.
#[cfg(test)]
fn check_without(fence: FenceAt, preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    /// Also after the panic that is hoped for.
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            DROPPED.set(None);
        }
    }
    let _restore = Restore;
    DROPPED.set(Some(fence));
    check(preemptions, model);
}
