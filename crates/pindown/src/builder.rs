//! [`Builder`]: from a provider to a running cache.

use std::sync::Arc;
use std::time::Duration;

use pindown_core::{
    Access, Affinity, BuildError, Config, Delivery, Monitor, MonitorError, PolicyKind, Provider,
};

use crate::cache::Cache;
use crate::monitor::{Manual, NoMonitor, Uncached};
use crate::sys::host::LinuxHost;
use crate::upkeep::Settings;
use crate::worker::Worker;

/// Which monitor keeps the cache coherent.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum MonitorChoice {
    /// The best that starts here; where none does, nothing is cached and everything still works.
    #[default]
    Auto,
    /// userfaultfd events (Linux 6.7, unprivileged).
    #[cfg(feature = "uffd")]
    Uffd,
    /// Programs on the kernel's unmap paths (Linux 6.1; CAP_BPF and CAP_PERFMON, or a helper).
    #[cfg(feature = "ebpf")]
    Ebpf,
    /// The application reports its changes.
    Manual,
    /// Caches nothing: each request registers.
    Uncached,
    /// Caches everything and sees nothing: moves stale bytes. To demonstrate the hazard only.
    None,
    /// One of your own, or one built with options.
    Custom(Arc<dyn Monitor>),
}

/// Builds a [`Cache`].
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use pindown::provider::sim::Sim;
/// let cache = pindown::Builder::new(Sim::new()).max_bytes(64 << 20).build()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Builder<P: Provider> {
    provider: P,
    monitor: MonitorChoice,
    config: Config,
    idle: Option<Duration>,
    sweep: Option<bool>,
    pressure: bool,
    export: bool,
}

impl<P: Provider> Builder<P> {
    /// Defaults: monitor `auto`, a budget below RLIMIT_MEMLOCK and the provider's limits, widening on.
    pub fn new(provider: P) -> Self {
        Self {
            provider,
            monitor: MonitorChoice::Auto,
            config: Config::default(),
            idle: None,
            sweep: None,
            pressure: true,
            export: std::env::var_os("PINDOWN_EXPORT").is_none_or(|v| v != "0"),
        }
    }

    /// Who sees the address space change.
    pub fn monitor(mut self, monitor: MonitorChoice) -> Self {
        self.monitor = monitor;
        self
    }

    /// Most bytes registered at a time. Default: what the system allows of pinned memory
    /// ([`system_limits`](crate::budget::system_limits)); of on-demand regions, which pin none, four times the
    /// memory.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.config.max_bytes = Some(bytes);
        self
    }

    /// Most registrations at a time.
    pub fn max_regions(mut self, regions: u64) -> Self {
        self.config.max_regions = Some(regions);
        self
    }

    /// Whether neighbours asked for one after the other are registered together.
    pub fn widen(mut self, widen: bool) -> Self {
        self.config.widen = widen;
        self
    }

    /// Which registration goes when there is no room.
    pub fn policy(mut self, policy: PolicyKind) -> Self {
        self.config.policy = policy;
        self
    }

    /// Registrations that nobody asked for during this time are given up; at rest all of them. They go
    /// within a quarter of it more, at least 5 ms. Default: kept until room is short. Needs the worker
    /// thread, as all of the following; providers that belong to one thread have none.
    pub fn idle(mut self, after: Duration) -> Self {
        self.idle = Some(after);
        self
    }

    /// Registrations are given up when they are this old, however much they are used, unless they are
    /// held; within a quarter of it more, at most a second. Bounds for how long a device can reach
    /// memory of which no event told that it is gone. Default: no bound.
    pub fn max_age(mut self, age: Duration) -> Self {
        self.config.max_age = Some(age);
        self
    }

    /// At which request for a range [`Cache::acquire_reused`](pindown_core::Cache::acquire_reused)
    /// registers it; before that the caller copies. Default: the second.
    pub fn register_after(mut self, uses: u32) -> Self {
        self.config.register_after = uses;
        self
    }

    /// Whether the worker looks, for at most half a percent of a core, for registrations whose memory
    /// is not mapped any more. Default: where nothing reports it (the manual monitor, on-demand paging).
    pub fn sweep(mut self, sweep: bool) -> Self {
        self.sweep = Some(sweep);
        self
    }

    /// Whether half of what is registered is given up when the machine is short of memory, as the
    /// kernel's pressure stall information says (Linux 5.2, unprivileged 6.5). Default: yes.
    pub fn relieve_pressure(mut self, relieve: bool) -> Self {
        self.pressure = relieve;
        self
    }

    /// Whether counters are shown to `pindown top` and `pindown metrics`, through a small memory
    /// file that this user's processes and root's can read. Default: yes, unless `PINDOWN_EXPORT=0`.
    pub fn export(mut self, export: bool) -> Self {
        self.export = export;
        self
    }

    /// Registrations with remote rights are really deregistered when they are put, so that no peer
    /// reaches the memory afterwards. They are then never cached.
    pub fn revoke_on_put(mut self) -> Self {
        self.config.single_use = Access::REMOTE;
        self
    }

    /// All of core's settings at once.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Starts the monitor and the worker thread.
    ///
    /// # Errors
    ///
    /// [`BuildError::Monitor`] when the chosen monitor does not start here; `Auto` always does.
    pub fn build(self) -> Result<Cache<P>, BuildError> {
        check_page_size()?;
        crate::sys::stay_loaded::stay_loaded();
        crate::trace::start_if_asked();
        let caps = self.provider.caps();
        let mut config = self.config;
        if config.max_bytes.is_none() {
            config.max_bytes = match caps.coherent {
                true => crate::budget::default_on_demand_bytes(caps.max_bytes),
                false => crate::budget::default_max_bytes(caps.max_bytes),
            };
        }
        let owned = matches!(self.provider.affinity(), Affinity::OwnerThread(_));
        let monitor = choose(self.monitor, caps.coherent)?;
        let told = matches!(monitor.delivery(), Delivery::WhenTold);
        let upkeep = Settings {
            idle: self.idle,
            max_age: config.max_age,
            sweep: self.sweep.unwrap_or(caps.coherent || told),
            pressure: self.pressure,
            export: self.export,
        };
        let host = Arc::new(LinuxHost::new());
        let cache = pindown_core::Cache::new(self.provider, monitor, host, config)?;
        let watches = Arc::new(crate::watches::Watches::default());
        let worker = (!owned).then(|| Worker::start(cache.clone(), watches.clone(), upkeep)).transpose();
        let worker = worker.map_err(|source| BuildError::Monitor {
            name: "worker thread",
            source: MonitorError::Io { what: "starting the worker thread", source },
        })?;
        Ok(Cache::new(cache, worker, watches))
    }
}

fn check_page_size() -> Result<(), BuildError> {
    match crate::sys::page_size() {
        pindown_core::PAGE_SIZE => Ok(()),
        _ => Err(BuildError::Config { what: "this kernel's pages are not 4 KiB, which pindown needs" }),
    }
}

fn choose(choice: MonitorChoice, coherent: bool) -> Result<Arc<dyn Monitor>, BuildError> {
    Ok(match choice {
        MonitorChoice::Auto if coherent => Arc::new(Uncached::new()),
        MonitorChoice::Auto => auto(),
        #[cfg(feature = "uffd")]
        MonitorChoice::Uffd => Arc::new(crate::monitor::Uffd::new()),
        #[cfg(feature = "ebpf")]
        MonitorChoice::Ebpf => Arc::new(ebpf()?),
        MonitorChoice::Manual => Arc::new(Manual::new()),
        MonitorChoice::Uncached => Arc::new(Uncached::new()),
        MonitorChoice::None => Arc::new(NoMonitor::new()),
        MonitorChoice::Custom(monitor) => monitor,
    })
}

fn auto() -> Arc<dyn Monitor> {
    let chosen = crate::monitor::auto();
    tracing::info!("auto takes {}", chosen.summary());
    chosen.monitor
}

/// Loaded with this process's own capabilities, else by the helper.
#[cfg(feature = "ebpf")]
fn ebpf() -> Result<crate::monitor::ebpf::EbpfMonitor, BuildError> {
    crate::monitor::ebpf::EbpfMonitor::open(&Default::default())
        .map_err(|source| BuildError::Monitor { name: "ebpf", source })
}
