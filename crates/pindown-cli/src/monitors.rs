//! The monitors by name.

use std::error::Error;
use std::os::fd::AsFd;
use std::sync::Once;

use pindown::provider::io_uring::UringProvider;
use pindown::{BuildError, Builder, Cache, MonitorChoice, MonitorError};

use crate::exit::CliError;

/// `--monitor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum MonitorName {
    /// The best that starts here.
    Auto,
    /// Programs on the kernel's unmap path.
    Ebpf,
    /// userfaultfd events; needs no privilege.
    Uffd,
    /// On-demand paging: the device follows the address space (verbs).
    Odp,
    /// The program reports its own changes.
    Manual,
    /// Sees nothing: shows what goes wrong.
    None,
}

impl MonitorName {
    /// Those that see changes by themselves, best first.
    pub(crate) const AUTOMATIC: [Self; 2] = [Self::Ebpf, Self::Uffd];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ebpf => "ebpf",
            Self::Uffd => "uffd",
            Self::Odp => "odp",
            Self::Manual => "manual",
            Self::None => "none",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        <Self as clap::ValueEnum>::from_str(name, false).ok()
    }

    /// What the builder takes. Fails where this build or the provider does not have it.
    pub(crate) fn choice(self) -> Result<MonitorChoice, CliError> {
        match self {
            Self::Auto => Ok(auto()),
            Self::Uffd => Ok(MonitorChoice::Uffd),
            Self::Manual => Ok(MonitorChoice::Manual),
            Self::None => Ok(MonitorChoice::None),
            #[cfg(feature = "ebpf")]
            Self::Ebpf => ebpf(),
            #[cfg(not(feature = "ebpf"))]
            Self::Ebpf => Err(CliError::machine(
                "this build has no eBPF monitor",
                "build with `--features ebpf`, or take --monitor uffd",
            )),
            Self::Odp => Err(CliError::machine(
                "on-demand paging is a feature of RDMA devices",
                "take --provider verbs on a machine with such a device, or --monitor uffd",
            )),
        }
    }
}

/// What `auto` takes; says so in one line, once, if a better one does not start here.
fn auto() -> MonitorChoice {
    static SAID: Once = Once::new();
    let chosen = pindown::monitor::auto();
    if !chosen.passed_over.is_empty() && std::env::var_os(QUIET_VARIABLE).is_none() {
        SAID.call_once(|| eprintln!("pindown: {}", chosen.summary()));
    }
    MonitorChoice::Custom(chosen.monitor)
}

/// Set for children, whose parent has said it.
pub(crate) const QUIET_VARIABLE: &str = "PINDOWN_CELL";

/// Names the socket of a helper that a parent process runs for its children.
pub(crate) const HELPER_VARIABLE: &str = "PINDOWN_CELL_HELPER";

#[cfg(feature = "ebpf")]
fn ebpf() -> Result<MonitorChoice, CliError> {
    use pindown::monitor::ebpf::{EbpfMonitor, EbpfOptions, Loader};
    let Some(socket) = std::env::var_os(HELPER_VARIABLE) else { return Ok(MonitorChoice::Ebpf) };
    let mut options = EbpfOptions::default();
    options.loader = Loader::Helper(socket.into());
    let monitor =
        EbpfMonitor::open(&options).map_err(|error| CliError::machine(chain(&error), remedy(&error)))?;
    Ok(MonitorChoice::Custom(std::sync::Arc::new(monitor)))
}

/// A cache over `ring`.
pub(crate) fn cache_on(ring: impl AsFd, monitor: MonitorName) -> Result<Cache<UringProvider>, CliError> {
    let provider = UringProvider::new(ring).map_err(|error| no_table(&error))?;
    Builder::new(provider).monitor(monitor.choice()?).build().map_err(|error| no_monitor(&error))
}

/// No ring: what forbids it, and what to do.
pub(crate) fn no_ring(error: std::io::Error) -> CliError {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM) => {
            "set kernel.io_uring_disabled to 0, join the group of kernel.io_uring_group, or let the container's seccomp profile allow io_uring_setup"
        }
        Some(libc::ENOSYS) => "run a kernel with CONFIG_IO_URING, 5.19 or later",
        Some(libc::ENOMEM) => "raise `ulimit -l` (RLIMIT_MEMLOCK): rings count towards it",
        _ => "see `pindown doctor`",
    };
    CliError::machine(format!("no io_uring: {error}"), remedy)
}

fn no_table(error: &(dyn Error + 'static)) -> CliError {
    CliError::machine(
        format!("no table of fixed buffers: {}", chain(error)),
        "run Linux 5.19 or later; raise `ulimit -l` if it is 0",
    )
}

pub(crate) fn no_monitor(error: &BuildError) -> CliError {
    let remedy = match error {
        BuildError::Monitor { source, .. } => remedy(source),
        _ => "see `pindown doctor`",
    };
    CliError::machine(chain(error), remedy)
}

/// An error with its causes, each said once: some texts hold their cause's already. A monitor's remedy
/// is left to the line after.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = own_text(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = own_text(error);
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

fn own_text(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref() {
        Some(MonitorError::Unavailable { what, .. }) => format!("no {what}"),
        _ => error.to_string(),
    }
}

/// What to do about a monitor that does not start.
fn remedy(error: &MonitorError) -> &'static str {
    match error {
        MonitorError::Unavailable { remedy, .. } => remedy,
        _ => "see `pindown doctor` for what each monitor needs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cause_is_said_twice() {
        let refused = std::io::Error::other("not both are this process's");
        let error = BuildError::Monitor {
            name: "ebpf",
            source: MonitorError::Unavailable {
                what: "CAP_BPF",
                remedy: "run as root",
                source: Some(refused),
            },
        };
        let text = "the monitor ebpf does not start: no CAP_BPF: not both are this process's";
        assert_eq!(chain(&error), text);
        let io = MonitorError::Io { what: "mmap", source: std::io::Error::other("full") };
        assert_eq!(chain(&io), "mmap failed: full");
    }
}
