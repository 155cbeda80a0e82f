//! [`None`](NoMonitor): claims everything, sees nothing.

use pindown_core::{
    Access, Cover, Coverage, Delivery, Monitor, MonitorError, Notifier, PageRange, Subscription,
};

/// **Unsound on purpose.** Claims to cover every mapping and sees no change, so registrations go
/// stale as they do in a cache without invalidation. It exists to show the hazard: `pindown perf
/// --monitor none` and the `hazard` column of `pindown coherence` must find wrong bytes with it,
/// which proves that those checks can fail. Nothing picks it by itself.
#[derive(Debug, Default)]
pub struct NoMonitor {
    _private: (),
}

impl NoMonitor {
    /// A monitor that sees nothing.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Monitor for NoMonitor {
    fn name(&self) -> &'static str {
        "none"
    }
    fn coverage(&self) -> Coverage {
        super::manual::everything(Cover::Full)
    }
    fn delivery(&self) -> Delivery {
        Delivery::WhenTold
    }
    fn start(&self, _notifier: Notifier) -> Result<(), MonitorError> {
        Ok(())
    }
    fn subscribe(&self, _range: PageRange, _access: Access) -> Result<Subscription, MonitorError> {
        Ok(Subscription::Events)
    }
    fn stop(&self) {}
}
