//! Which monitors and providers work here, and which `auto` takes.

use pindown_core::{Cover, Coverage, Monitor};

use super::{Standing, facilities};
use crate::monitor::Manual;

/// A monitor or provider.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Backend {
    /// Its name on the command line.
    pub name: &'static str,
    /// Whether it works here.
    pub usable: bool,
    /// Why, or why not.
    pub why: String,
    /// What to do where it does not.
    pub remedy: Option<String>,
    /// Of a monitor: what it covers.
    pub coverage: Option<Coverage>,
}

impl Backend {
    pub(super) fn usable(name: &'static str, why: &str) -> Self {
        Self { name, usable: true, why: why.into(), remedy: None, coverage: None }
    }

    pub(super) fn unusable(name: &'static str, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, usable: false, why: why.into(), remedy: Some(remedy.into()), coverage: None }
    }

    fn covering(mut self, coverage: Coverage) -> Self {
        self.coverage = Some(coverage);
        self
    }

    /// Events that a monitor waives, by name.
    pub fn waived(&self) -> Vec<&'static str> {
        self.coverage.as_ref().map(Coverage::waived).unwrap_or_default()
    }

    /// Kinds of mapping that a monitor does not cover, with the reason.
    pub fn not_covered(&self) -> Vec<(pindown_core::MappingKind, &'static str)> {
        let rows = self.coverage.as_ref().map(|c| c.rows.as_slice()).unwrap_or_default();
        rows.iter()
            .filter_map(|&(kind, cover)| if let Cover::No(why) = cover { Some((kind, why)) } else { None })
            .collect()
    }
}

/// What `auto` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recommendation {
    /// The monitor; `"uncached"` where none works.
    pub monitor: &'static str,
    /// The provider; `None` where none works.
    pub provider: Option<&'static str>,
}

/// Every monitor, best first. Starts those that can be started, self-test included, and stops them.
pub fn monitors() -> Vec<Backend> {
    vec![
        ebpf(),
        uffd(),
        Backend::usable("manual", "the application reports its changes: never taken by auto")
            .covering(Manual::new().coverage()),
        Backend::usable("uncached", "caches nothing: always right, never fast").covering(Coverage::default()),
    ]
}

#[cfg(feature = "ebpf")]
fn ebpf() -> Backend {
    let opened = crate::monitor::ebpf::EbpfMonitor::open(&Default::default());
    let started = opened.and_then(|monitor| {
        monitor.start(pindown_core::Notifier::detached())?;
        monitor.stop();
        Ok(monitor.coverage())
    });
    match started {
        Ok(coverage) => Backend::usable("ebpf", "its self-test saw every event").covering(coverage),
        Err(error) => refused("ebpf", error),
    }
}

#[cfg(not(feature = "ebpf"))]
fn ebpf() -> Backend {
    Backend::unusable("ebpf", "built without the feature ebpf", "build with `--features ebpf`")
}

#[cfg(feature = "uffd")]
fn uffd() -> Backend {
    let monitor = crate::monitor::Uffd::new();
    let coverage = monitor.coverage();
    let backend = match monitor.start(pindown_core::Notifier::detached()) {
        Ok(()) => {
            monitor.stop();
            Backend::usable("uffd", "its self-test saw every event")
        }
        Err(error) => refused("uffd", error),
    };
    backend.covering(coverage)
}

#[cfg(not(feature = "uffd"))]
fn uffd() -> Backend {
    Backend::unusable("uffd", "built without the feature uffd", "build with the default features")
}

/// A monitor's refusal, in words.
#[cfg(any(feature = "uffd", feature = "ebpf"))]
fn refused(name: &'static str, error: pindown_core::MonitorError) -> Backend {
    let why = crate::monitor::explain(&error);
    let remedy = match error {
        pindown_core::MonitorError::Unavailable { remedy, .. } => remedy,
        _ => "use another monitor, and report this with `doctor`'s output",
    };
    Backend::unusable(name, why, remedy)
}

/// Every provider.
pub fn providers() -> Vec<Backend> {
    let io_uring = facilities().into_iter().find(|f| f.name == "io_uring");
    let io_uring = match io_uring {
        Some(fact) if fact.standing == Standing::Good => Backend::usable("io-uring", "a ring can be made"),
        Some(fact) => Backend::unusable("io-uring", fact.value, fact.remedy.unwrap_or_default()),
        None => Backend::unusable("io-uring", "not known", "see io_uring_setup(2)"),
    };
    #[cfg(feature = "verbs")]
    let verbs = super::verbs::backend();
    #[cfg(not(feature = "verbs"))]
    let verbs =
        Backend::unusable("verbs", "built without the feature verbs", "build with `--features verbs`");
    vec![io_uring, verbs, Backend::usable("sim", "a simulated device for tests: moves nothing")]
}

/// What `auto` takes here.
pub fn recommended() -> Recommendation {
    let first = |all: Vec<Backend>, but: &[&str]| {
        all.into_iter().find(|b| b.usable && !but.contains(&b.name)).map(|b| b.name)
    };
    Recommendation {
        monitor: first(monitors(), &["manual"]).unwrap_or("uncached"),
        provider: first(providers(), &["sim"]),
    }
}
