//! The calling thread's [`ThreadRecord`], and the registry of all.

#[cfg(not(loom))]
use super::record::NOBODYS;
use super::record::{Registry, ThreadRecord};

/// Parks the record when the thread exits.
struct Guard(&'static ThreadRecord);

impl Drop for Guard {
    fn drop(&mut self) {
        #[cfg(not(loom))]
        real::RECORD.set(&NOBODYS);
        Registry::park(self.0);
    }
}

#[cold]
pub(crate) fn flush_hits(record: &ThreadRecord, id: u32) {
    registry().take_counter(record, id);
}

pub(crate) fn forget_hits(id: u32) {
    registry().forget(id);
}

#[cfg(not(loom))]
pub(crate) use real::{my_record, present_record, registry};

#[cfg(not(loom))]
mod real {
    use super::*;
    use std::cell::{Cell, OnceCell};

    thread_local! {
        /// Without a destructor, so that reading it costs one load.
        pub(super) static RECORD: Cell<&'static ThreadRecord> = const { Cell::new(&NOBODYS) };
        static GUARD: OnceCell<Guard> = const { OnceCell::new() };
    }

    pub(crate) fn registry() -> &'static Registry {
        static REGISTRY: std::sync::OnceLock<Registry> = std::sync::OnceLock::new();
        REGISTRY.get_or_init(Registry::new)
    }

    /// This thread's record; `None` while the thread is being torn down (then holds are counted).
    #[inline(always)]
    pub(crate) fn my_record() -> Option<&'static ThreadRecord> {
        let record = RECORD.get();
        if std::ptr::eq(record, &NOBODYS) { adopt() } else { Some(record) }
    }

    /// This thread's record, or one without a free slot; never `None` (in a model it may be).
    #[inline(always)]
    pub(crate) fn present_record() -> Option<&'static ThreadRecord> {
        Some(RECORD.get())
    }

    #[cold]
    #[inline(never)]
    fn adopt() -> Option<&'static ThreadRecord> {
        GUARD
            .try_with(|guard| {
                let record = guard.get_or_init(|| Guard(registry().adopt())).0;
                RECORD.set(record);
                record
            })
            .ok()
    }
}

#[cfg(loom)]
pub(crate) use model::{my_record, my_record as present_record, registry};

/// loom's threads and statics begin anew with each execution.
#[cfg(loom)]
mod model {
    use super::*;

    loom::lazy_static! {
        static ref REGISTRY: Registry = Registry::new();
    }
    loom::thread_local! {
        static GUARD: Guard = Guard(registry().adopt());
    }

    pub(crate) fn registry() -> &'static Registry {
        &REGISTRY
    }

    pub(crate) fn my_record() -> Option<&'static ThreadRecord> {
        GUARD.try_with(|guard| guard.0).ok()
    }
}
