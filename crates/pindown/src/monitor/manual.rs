//! [`Manual`]: the application reports its own changes.

use std::sync::{Mutex, PoisonError};

use pindown_core::{
    Access, Cover, Coverage, Delivery, EventKind, MappingKind, Monitor, MonitorError, Notifier, PageRange,
    Subscription,
};

/// Sees nothing by itself: whoever changes the address space says so, before the change or after
/// it but before anyone relies on it, through `Cache::notifier`,
/// `Cache::invalidate` or [`report`](Self::report).
///
/// For allocators and engines that own their memory, and for events imported from elsewhere. An
/// unreported change of a registered range makes transfers move stale bytes: that promise is what
/// choosing this monitor means, and why `auto` never does.
#[derive(Debug, Default)]
pub struct Manual {
    notifier: Mutex<Option<Notifier>>,
}

impl Manual {
    /// A monitor that waits for reports.
    pub fn new() -> Self {
        Self::default()
    }

    /// `range` changed. Takes a lock, so not for use inside an allocator: keep a
    /// [`Notifier`] there.
    pub fn report(&self, range: PageRange) {
        if let Some(notifier) = self.notifier().as_ref() {
            notifier.invalidate(range, EventKind::Manual);
        }
    }

    fn notifier(&self) -> std::sync::MutexGuard<'_, Option<Notifier>> {
        self.notifier.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every kind that can be pinned at all, with the same cover.
pub(super) fn everything(cover: Cover) -> Coverage {
    use MappingKind::*;
    let kinds = [Anonymous, SharedAnonymous, Shmem, Hugetlb, PrivateFile, SharedFile];
    let mut rows: Vec<_> = kinds.into_iter().map(|kind| (kind, cover)).collect();
    rows.push((Special, Cover::No("device and secret memory cannot be pinned")));
    Coverage { rows }
}

impl Monitor for Manual {
    fn name(&self) -> &'static str {
        "manual"
    }
    fn coverage(&self) -> Coverage {
        everything(Cover::If("the application reports every change"))
    }
    fn delivery(&self) -> Delivery {
        Delivery::WhenTold
    }
    fn start(&self, notifier: Notifier) -> Result<(), MonitorError> {
        *self.notifier() = Some(notifier);
        Ok(())
    }
    fn subscribe(&self, _range: PageRange, _access: Access) -> Result<Subscription, MonitorError> {
        Ok(Subscription::Events)
    }
    fn stop(&self) {
        *self.notifier() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_reach_the_notifier_until_stopped() {
        let (monitor, notifier) = (Manual::new(), Notifier::detached());
        let range = PageRange::new(0x10000, 0x20000).unwrap();
        monitor.report(range); // before start: nobody to tell
        monitor.start(notifier.clone()).unwrap();
        let before = notifier.generation();
        monitor.report(range);
        assert!(notifier.generation() > before);
        assert_eq!(notifier.take_detached(), [Some((range, EventKind::Manual))]);
        monitor.stop();
        monitor.report(range);
        assert_eq!(notifier.take_detached(), []);
    }

    #[test]
    fn covers_on_a_condition_only() {
        let coverage = Manual::new().coverage();
        assert!(matches!(coverage.of(MappingKind::Anonymous), Cover::If(_)));
        assert!(matches!(coverage.of(MappingKind::Special), Cover::No(_)));
    }
}
