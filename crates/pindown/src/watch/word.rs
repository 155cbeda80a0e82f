//! The generation word itself, for those who poll it without a call.

use std::sync::atomic::AtomicU64;

use super::Watch;

impl Watch {
    /// The word behind [`generation`](Watch::generation). Load it with acquire ordering; the kernel or a thread of
    /// the watch changes it.
    pub fn generation_word(&self) -> &AtomicU64 {
        self.monitor.generation().unwrap_or_else(|| self.notifier.generation_word())
    }
}
