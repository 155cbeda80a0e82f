//! The eBPF monitor: ummunotify without a kernel module.
//!
//! Programs in the kernel move a generation word that this process has mapped and push the changed
//! range into a ring buffer, before the changing call returns and whoever makes it. A lookup's check
//! is one acquire load. Linux 6.1, x86-64; CAP_BPF and CAP_PERFMON, or a running `pindown helper`.

mod ask;
mod client;
mod engine;
mod hooks;
mod load;
mod selftest;
#[cfg(test)]
mod tests;
mod watched;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use pindown_core::{
    Access, Cover, Coverage, Delivery, Drained, EventKind, MappingKind, Monitor, MonitorError, Notifier,
    PageRange, Subscription,
};

pub use hooks::Variant;

use self::ask::Asker;
pub(crate) use self::client::{Client, Service, Sponsor};
pub(crate) use self::engine::{DEFAULT_RING_BYTES, Engine, RING_BYTES, SlotFds};
use self::watched::Watched;
use crate::sys::bpf;
use crate::sys::bpf_pages::Record;

/// Who loads the programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loader {
    /// This process if it has the capabilities, else the helper at its usual path.
    #[default]
    Auto,
    /// This process.
    Own,
    /// The helper behind this socket.
    Helper(PathBuf),
}

/// How to start.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EbpfOptions {
    /// The variant; `None`: fexit where the kernel accepts it, else tracepoint. A helper decides itself.
    pub variant: Option<Variant>,
    /// Who loads the programs.
    pub loader: Loader,
    /// Bytes of the ring of records, 32 a record; a power of two. `None`: 256 KiB.
    pub ring_bytes: Option<usize>,
    /// The programs of these names (separated by commas) are not attached, and the self-test must notice.
    #[cfg(test)]
    pub(crate) hidden: Option<String>,
}

/// See the [module](self).
#[derive(Debug)]
pub struct EbpfMonitor {
    client: Client,
    asker: Asker,
    watched: Mutex<Watched>,
    files: FileHull,
    stopped: AtomicBool,
    tested: OnceLock<()>,
}

/// The smallest range around all shared mappings that were subscribed: what is stale when one of
/// their files loses a page. It only grows.
#[derive(Debug)]
struct FileHull {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl FileHull {
    fn add(&self, range: PageRange) {
        self.start.fetch_min(range.start(), Ordering::AcqRel);
        self.end.fetch_max(range.end(), Ordering::AcqRel);
    }

    fn range(&self) -> Option<PageRange> {
        PageRange::new(self.start.load(Ordering::Acquire), self.end.load(Ordering::Acquire)).ok()
    }
}

impl EbpfMonitor {
    /// Loads the programs, or asks a helper for them, and enrols this process. It is watched from
    /// [`start`](Monitor::start) on, which runs the self-test.
    ///
    /// # Errors
    ///
    /// [`MonitorError::Unavailable`] when the capabilities, the helper or the kernel's support are
    /// missing; it says which.
    pub fn open(options: &EbpfOptions) -> Result<Self, MonitorError> {
        Ok(Self {
            client: open_client(options)?,
            asker: Asker::default(),
            watched: Mutex::new(Watched::new()),
            files: FileHull { start: AtomicUsize::new(usize::MAX), end: AtomicUsize::new(0) },
            stopped: AtomicBool::new(false),
            tested: OnceLock::new(),
        })
    }

    /// The variant in use.
    pub fn variant(&self) -> Variant {
        self.client.service.variant
    }

    /// Whether a helper serves it.
    pub fn is_helped(&self) -> bool {
        self.client.is_helped()
    }

    /// Names of the attached programs.
    pub fn hooks(&self) -> Vec<String> {
        self.client.service.hooks.iter().map(|h| h.1.clone()).collect()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_over(&self, r: Record, notifier: &Notifier) {
        let kind = match r.kind {
            0 => EventKind::Unmap,
            1 => EventKind::Remap,
            2 => EventKind::Remove,
            3 => EventKind::File,
            4 => EventKind::Protect,
            _ => return notifier.push_lost(),
        };
        let range = match kind {
            EventKind::File => self.files.range(),
            _ => PageRange::clipped(r.start as usize, r.end.saturating_sub(r.start) as usize),
        };
        if let Some(range) = range {
            notifier.push(range, kind);
        }
    }

    /// What the variant cannot see is not cached.
    fn cover(&self, range: PageRange) -> Result<(), &'static str> {
        if self.client.service.variant == Variant::Fexit {
            return Ok(());
        }
        if self.asker.cover(&self.client, range)?.has_file {
            self.files.add(range);
        }
        match self.client.status.uring_madvise.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err("the process discards memory through io_uring, whose end is not seen"),
        }
    }
}

fn open_client(options: &EbpfOptions) -> Result<Client, MonitorError> {
    match &options.loader {
        Loader::Own => own_client(options),
        Loader::Helper(path) => crate::helper::connect(path, options),
        Loader::Auto => own_client(options).or_else(|own| {
            let path = crate::helper::default_socket();
            crate::helper::connect(&path, options).map_err(|helped| neither(own, &path, &helped))
        }),
    }
}

/// Why this process cannot load the programs, and why the helper does not either.
fn neither(own: MonitorError, path: &std::path::Path, helped: &MonitorError) -> MonitorError {
    let MonitorError::Unavailable { what, remedy, source } = own else { return own };
    let own = source.map(|e| format!("{e}; ")).unwrap_or_default();
    let helper = std::error::Error::source(helped).map_or_else(|| helped.to_string(), |e| e.to_string());
    let both = std::io::Error::other(format!("{own}the helper at {}: {helper}", path.display()));
    MonitorError::Unavailable { what, remedy, source: Some(both) }
}

fn own_client(options: &EbpfOptions) -> Result<Client, MonitorError> {
    let failed = |what| move |source| MonitorError::Io { what, source };
    #[cfg(test)]
    let hidden = options.hidden.as_deref();
    #[cfg(not(test))]
    let hidden = None;
    let engine = Engine::own(options.variant, hidden)?;
    let me = bpf::pidfd_open(std::process::id()).map_err(failed("pidfd_open"))?;
    let ring_bytes = options.ring_bytes.unwrap_or(DEFAULT_RING_BYTES);
    let fds = engine.enrol(me.as_fd(), ring_bytes).map_err(failed("enrolling this process"))?;
    let service = Service { variant: engine.variant(), hooks: engine.hooks() };
    let sponsor = Sponsor::Own(engine, fds.slot);
    Client::new(fds, service, sponsor).map_err(failed("mmap of a BPF map"))
}

impl Monitor for EbpfMonitor {
    fn name(&self) -> &'static str {
        "ebpf"
    }

    fn coverage(&self) -> Coverage {
        match self.variant() {
            Variant::Fexit => fexit_coverage(),
            Variant::Tracepoint => tracepoint_coverage(),
        }
    }

    fn delivery(&self) -> Delivery {
        Delivery::BeforeReturn
    }

    fn generation(&self) -> Option<&AtomicU64> {
        Some(&self.client.status.generation)
    }

    fn drain(&self, notifier: &Notifier) -> Drained {
        self.client.drain(|record| self.hand_over(record, notifier))
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.client.filter.wake.store(1, Ordering::Release); // from now on the programs wake a poll
        Some(self.client.ring_fd())
    }

    fn start(&self, _: Notifier) -> Result<(), MonitorError> {
        self.stopped.store(false, Ordering::Release);
        if self.tested.get().is_none() {
            selftest::run(self)?;
            let _ = self.tested.set(());
        }
        Ok(())
    }

    fn subscribe(&self, range: PageRange, access: Access) -> Result<Subscription, MonitorError> {
        if !self.client.is_owner() {
            return Err(MonitorError::Forked);
        }
        if self.stopped.load(Ordering::Acquire) {
            return Ok(Subscription::Uncacheable("the monitor was stopped"));
        }
        // The bits first, so that a change during the look is reported. They stay for what turns out
        // uncacheable: who asked unsubscribes it like any other.
        self.watched().add(&self.client.filter, range, access);
        Ok(self.cover(range).map_or_else(Subscription::Uncacheable, |()| Subscription::Events))
    }

    fn unsubscribe(&self, range: PageRange) {
        if self.client.is_owner() {
            self.watched().remove(&self.client.filter, range);
        }
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }
}

fn tracepoint_coverage() -> Coverage {
    use MappingKind::{Anonymous, Hugetlb, PrivateFile, SharedAnonymous, SharedFile, Shmem, Special};
    let unseen = "a cut by another process is not seen on private pages; the fexit variant sees it";
    Coverage {
        rows: vec![
            (Anonymous, Cover::Full),
            (SharedAnonymous, Cover::Full),
            (Shmem, Cover::Full),
            (SharedFile, Cover::Full),
            (Hugetlb, Cover::If("anonymous, or mapped shared")),
            (PrivateFile, Cover::No(unseen)),
            (Special, Cover::No("device memory changes unseen")),
        ],
    }
}

fn fexit_coverage() -> Coverage {
    use MappingKind::{Anonymous, Hugetlb, PrivateFile, SharedAnonymous, SharedFile, Shmem};
    let full = [Anonymous, SharedAnonymous, Shmem, SharedFile, PrivateFile].map(|k| (k, Cover::Full));
    let mut rows = full.to_vec();
    rows.push((Hugetlb, Cover::Waived(&["hugetlb-cut-by-another-process-under-preemption"])));
    Coverage { rows }
}
