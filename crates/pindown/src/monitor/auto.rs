//! What `auto` takes: the first monitor that starts here, and why not those before it.

use std::sync::Arc;

use pindown_core::{Monitor, MonitorError};

use super::Uncached;

/// See [`auto`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Chosen {
    /// Tried already; not running. For [`MonitorChoice::Custom`](crate::MonitorChoice::Custom).
    pub monitor: Arc<dyn Monitor>,
    /// Better ones that do not start here, best first, with the reason.
    pub passed_over: Vec<(&'static str, MonitorError)>,
}

impl Chosen {
    /// One line, e.g. for a log: what was taken and, if a better one was passed over, why.
    pub fn summary(&self) -> String {
        let why = |(name, error): &(&str, MonitorError)| format!("; not {name}: {}", explain(error));
        let name = self.monitor.name();
        format!("monitor {name}{}", self.passed_over.iter().map(why).collect::<String>())
    }
}

/// The best monitor that starts here: eBPF (own capabilities or a helper), else userfaultfd, else one
/// that caches nothing and is always right.
pub fn auto() -> Chosen {
    #[cfg_attr(not(any(feature = "uffd", feature = "ebpf")), allow(unused_mut))]
    let mut passed_over = Vec::new();
    #[cfg(feature = "ebpf")]
    match super::ebpf::EbpfMonitor::open(&Default::default()).and_then(started) {
        Ok(monitor) => return Chosen { monitor, passed_over },
        Err(e) => passed_over.push(("ebpf", e)),
    }
    #[cfg(feature = "uffd")]
    match started(super::Uffd::new()) {
        Ok(_) => return Chosen { monitor: Arc::new(super::Uffd::new()), passed_over },
        Err(e) => passed_over.push(("uffd", e)),
    }
    Chosen { monitor: Arc::new(Uncached::new()), passed_over }
}

/// Tried with a notifier that nobody listens to.
#[cfg(any(feature = "uffd", feature = "ebpf"))]
fn started(monitor: impl Monitor) -> Result<Arc<dyn Monitor>, MonitorError> {
    monitor.start(pindown_core::Notifier::detached())?;
    monitor.stop();
    Ok(Arc::new(monitor))
}

/// An error in one line, without its remedy (which `doctor` gives).
pub(crate) fn explain(error: &MonitorError) -> String {
    match error {
        MonitorError::Unavailable { what, source: Some(source), .. } => format!("no {what} ({source})"),
        MonitorError::Unavailable { what, .. } => format!("no {what}"),
        MonitorError::Io { what, source } => format!("{what} failed ({source})"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_one_line_with_the_reason() {
        let refused = MonitorError::Unavailable {
            what: "CAP_BPF",
            remedy: "run as root",
            source: Some(std::io::Error::other("not held")),
        };
        let chosen = Chosen { monitor: Arc::new(Uncached::new()), passed_over: vec![("ebpf", refused)] };
        assert_eq!(chosen.summary(), "monitor uncached; not ebpf: no CAP_BPF (not held)");
    }

    #[test]
    fn what_was_taken_starts() {
        let chosen = auto();
        chosen.monitor.start(pindown_core::Notifier::detached()).unwrap();
        chosen.monitor.stop();
        assert!(!chosen.summary().contains('\n'), "{}", chosen.summary());
    }
}
