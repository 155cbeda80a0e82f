//! What a user sets in the environment, since the program does not know of pindown.
//!
//! | variable | |
//! |---|---|
//! | `PINDOWN_MONITOR` | `auto` (default), `ebpf`, `uffd`; `off`: the library does nothing |
//! | `PINDOWN_SUMMARY` | `1`: a line of figures on standard error when the process ends |

use std::sync::Arc;

use pindown::monitor::Uffd;
use pindown::monitor::ebpf::{EbpfMonitor, EbpfOptions};
use pindown::{Monitor, MonitorError, Notifier};

/// Who is to see the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// eBPF where it starts, else userfaultfd.
    Auto,
    /// eBPF alone.
    Ebpf,
    /// userfaultfd alone.
    Uffd,
    /// Nobody: leave the program alone.
    Off,
}

impl Watcher {
    /// What `PINDOWN_MONITOR` says. An unknown word is told on standard error and taken as `off`, since
    /// whoever wrote it did not mean `auto`.
    pub fn from_environment() -> Self {
        let word = std::env::var("PINDOWN_MONITOR").unwrap_or_default();
        Self::from_word(&word).unwrap_or_else(|| {
            eprintln!("pindown: off, since PINDOWN_MONITOR={word} is none of auto, ebpf, uffd, off");
            Self::Off
        })
    }

    fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "" | "auto" => Self::Auto,
            "ebpf" => Self::Ebpf,
            "uffd" => Self::Uffd,
            "off" => Self::Off,
            _ => return None,
        })
    }

    /// The monitor, started, reporting to `notifier`. `None`: off.
    ///
    /// # Errors
    ///
    /// Why the last one tried does not start.
    pub fn start(self, notifier: &Notifier) -> Result<Option<Arc<dyn Monitor>>, MonitorError> {
        match self {
            Self::Off => Ok(None),
            Self::Ebpf => ebpf(notifier).map(Some),
            Self::Uffd => uffd(notifier).map(Some),
            Self::Auto => ebpf(notifier).or_else(|_| uffd(notifier)).map(Some),
        }
    }
}

fn ebpf(notifier: &Notifier) -> Result<Arc<dyn Monitor>, MonitorError> {
    started(Arc::new(EbpfMonitor::open(&EbpfOptions::default())?), notifier)
}

fn uffd(notifier: &Notifier) -> Result<Arc<dyn Monitor>, MonitorError> {
    started(Arc::new(Uffd::new()), notifier)
}

fn started(monitor: Arc<dyn Monitor>, notifier: &Notifier) -> Result<Arc<dyn Monitor>, MonitorError> {
    monitor.start(notifier.clone())?;
    Ok(monitor)
}

/// Whether `PINDOWN_SUMMARY` asks for figures.
pub fn wants_summary() -> bool {
    std::env::var_os("PINDOWN_SUMMARY").is_some_and(|v| !v.is_empty() && v != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_as_documented() {
        assert_eq!(Watcher::from_word(""), Some(Watcher::Auto));
        assert_eq!(Watcher::from_word("uffd"), Some(Watcher::Uffd));
        assert_eq!(Watcher::from_word("off"), Some(Watcher::Off));
        assert_eq!(Watcher::from_word("kernel"), None);
        assert!(Watcher::Off.start(&Notifier::detached()).unwrap().is_none());
    }
}
