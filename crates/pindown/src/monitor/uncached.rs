//! [`Uncached`]: no monitor, so nothing is kept.

use pindown_core::{Access, Coverage, Delivery, Monitor, MonitorError, Notifier, PageRange, Subscription};

/// Covers nothing, so each request registers and its put deregisters: always right, never fast.
/// What `auto` falls back to, and what providers that are coherent by themselves run with.
#[derive(Debug, Default)]
pub struct Uncached;

impl Uncached {
    /// A monitor that covers nothing.
    pub fn new() -> Self {
        Self
    }
}

impl Monitor for Uncached {
    fn name(&self) -> &'static str {
        "uncached"
    }
    fn coverage(&self) -> Coverage {
        Coverage::default()
    }
    fn delivery(&self) -> Delivery {
        Delivery::OnDemand
    }
    fn start(&self, _notifier: Notifier) -> Result<(), MonitorError> {
        Ok(())
    }
    fn subscribe(&self, _range: PageRange, _access: Access) -> Result<Subscription, MonitorError> {
        Ok(Subscription::Uncacheable("no monitor runs: see `pindown doctor`"))
    }
    fn stop(&self) {}
}
