//! [`Domain`]: the cache of one protection domain.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pindown::provider::verbs::{Options, Verbs};
use pindown::{Builder, Cache, MonitorChoice, Stats};
use pindown_preload::settings::Watcher;

use super::abi::{IbvContext, IbvPd};

/// Registrations that a worker or another thread is just giving back take this long at most.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Domain {
    pub(super) cache: Cache<Verbs>,
    pub(super) context: usize,
    /// Shells that the program has not deregistered.
    pub(super) held: AtomicUsize,
}

impl Domain {
    /// `None`: nothing is cached here; the reason is told once.
    pub(super) fn open(pd: *mut IbvPd, watcher: Watcher) -> Option<Self> {
        let monitor = match watcher {
            Watcher::Auto => MonitorChoice::Auto,
            Watcher::Ebpf => MonitorChoice::Ebpf,
            Watcher::Uffd => MonitorChoice::Uffd,
            Watcher::Off => return None,
        };
        // SAFETY: the program's live domain: before it is deallocated, or its context closed, our
        // functions in front of those calls close the cache.
        let provider = unsafe { Verbs::from_pd(pd.cast(), Options::default()) };
        let provider = provider.map_err(|e| tell(&e)).ok()?;
        let cache = Builder::new(provider).monitor(monitor).build().map_err(|e| tell(&e)).ok()?;
        // SAFETY: as above.
        let context: *mut IbvContext = unsafe { (*pd).context };
        Some(Self { cache, context: context.addr(), held: AtomicUsize::new(0) })
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire) > 0
    }

    /// Deregisters all that is not held, now; what it did.
    pub(super) fn close(&self) -> (Stats, io::Result<()>) {
        let timeout = if self.is_held() { Duration::ZERO } else { CLOSE_TIMEOUT };
        let closed = self.cache.clone().close(timeout);
        (self.cache.stats(), closed.map_err(io::Error::other))
    }
}

fn tell(error: &dyn std::error::Error) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    let why = error.source().map_or(String::new(), |e| format!(" ({e})"));
    ONCE.call_once(|| eprintln!("pindown_verbs: not caching registrations: {error}{why}"));
}
