//! [`Hub`]: the one userfaultfd of the process, shared by all its caches.
//!
//! A mapping can be armed by one userfaultfd only (EBUSY), so two caches with one each would
//! exclude each other from every mapping that both use. The hub owns the descriptor, the reader
//! and the grace periods; each cache's notifier is a listener.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};

use pindown_core::{MonitorError, Notifier};

use super::grace::GraceSet;
use super::{helper, reader, selftest};
use crate::sys::eventfd::EventFd;
use crate::sys::fork::PrivateFd;
use crate::sys::pagemap::Pagemap;
use crate::sys::per_process::PerProcess;
use crate::sys::procmap::ProcMap;
use crate::sys::slots::Slots;
use crate::sys::{quiet_thread, uffd, valgrind};

/// Caches of one process that can listen at a time.
pub(super) const LISTENERS: usize = 64;

/// The process's userfaultfd and who listens to it.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) fd: PrivateFd,
    pub(super) procmap: ProcMap,
    pub(super) pagemap: Pagemap,
    pub(super) grace: GraceSet,
    pub(super) stop: EventFd,
    pub(super) stopping: AtomicBool,
    /// The reader met an error that it cannot explain: nothing is cached any more.
    pub(super) broken: AtomicBool,
    pub(super) listeners: Slots<Notifier, LISTENERS>,
    pub(super) helper: OnceLock<Thread>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Mappings armed so far, and whether the process's mappings were too many when last counted.
    pub(super) armed: AtomicU64,
    pub(super) crowded: AtomicBool,
}

/// The process's hub, while a cache listens; a forked child makes its own.
static REGISTRY: PerProcess<Mutex<Option<Arc<Hub>>>> = PerProcess::new();

fn registry() -> &'static Mutex<Option<Arc<Hub>>> {
    REGISTRY.get(|| Mutex::new(None))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// The process's hub, started if need be, with `notifier` among its listeners.
    pub(super) fn join(notifier: Notifier) -> Result<(Arc<Self>, Listener), MonitorError> {
        let mut slot = lock(registry());
        let hub = match &*slot {
            Some(hub) => Arc::clone(hub),
            None => Self::start()?,
        };
        let listener = hub.attach(notifier);
        if listener.is_ok() {
            *slot = Some(Arc::clone(&hub));
        } else if slot.is_none() {
            hub.shut_down();
        }
        Ok((hub, listener?))
    }

    /// Ends listening; the last one out stops the hub.
    pub(super) fn leave(self: Arc<Self>, listener: Listener) {
        let mut slot = lock(registry());
        self.detach(listener);
        if self.listeners.is_empty() {
            self.shut_down();
            *slot = None;
        }
    }

    /// Whether the reader met an error that it cannot explain.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    fn start() -> Result<Arc<Self>, MonitorError> {
        if valgrind::is_running() {
            return Err(under_valgrind());
        }
        let fd = uffd::open().map_err(explain)?;
        let hub = Arc::new(Self {
            fd: PrivateFd::new(fd).ok_or_else(too_many)?,
            procmap: ProcMap::open().map_err(|e| own_file("/proc/self/maps", e))?,
            pagemap: Pagemap::open().map_err(|e| own_file("/proc/self/pagemap", e))?,
            grace: GraceSet::new(),
            stop: EventFd::new().map_err(|e| io("eventfd", e))?,
            stopping: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            listeners: Slots::new(),
            helper: OnceLock::new(),
            threads: Mutex::new(Vec::new()),
            armed: AtomicU64::new(0),
            crowded: AtomicBool::new(false),
        });
        let tested = hub.start_threads().and_then(|()| selftest::run(&hub));
        if tested.is_err() {
            hub.shut_down();
        }
        tested.map(|()| hub)
    }

    fn start_threads(self: &Arc<Self>) -> Result<(), MonitorError> {
        let (for_reader, for_helper) = (Arc::clone(self), Arc::clone(self));
        let spawn = |name, body: Box<dyn FnOnce() + Send>| {
            let thread = quiet_thread::spawn(name, body).map_err(|e| io("starting a thread", e))?;
            lock(&self.threads).push(thread);
            Ok(())
        };
        spawn("pindown-uffd", Box::new(move || reader::run(&for_reader)))?;
        spawn("pindown-grace", Box::new(move || helper::run(&for_helper)))
    }

    /// Disarms everything while the reader still reads, then ends the threads. Nothing may be armed
    /// from here on.
    fn shut_down(&self) {
        self.disarm_all();
        self.stopping.store(true, Ordering::Release);
        if let Some(helper) = self.helper.get() {
            helper.unpark();
        }
        self.stop.raise();
        let threads = std::mem::take(&mut *lock(&self.threads));
        threads.into_iter().for_each(|t| drop(t.join()));
    }

    /// Mapping by mapping, since one call over a range with an unarmable mapping in it fails.
    fn disarm_all(&self) {
        let mut at = 0;
        while let Ok(Some(vma)) = self.procmap.find(at, true) {
            if let Some(range) = vma.range() {
                let _ = uffd::disarm(self.fd.raw(), range);
            }
            at = vma.end;
        }
    }

    /// Adds a listener that hears of every event that is read after this returned.
    pub(super) fn attach(&self, notifier: Notifier) -> Result<Listener, MonitorError> {
        self.listeners.attach(notifier).map(Listener).ok_or_else(too_many)
    }

    /// Removes a listener; it hears of nothing after this returned.
    pub(super) fn detach(&self, listener: Listener) {
        self.listeners.detach(listener.0);
    }
}

/// A place among the listeners.
#[derive(Debug)]
pub(super) struct Listener(usize);

pub(super) fn io(what: &'static str, source: std::io::Error) -> MonitorError {
    MonitorError::Io { what, source }
}

/// A process that gave up another user's rights may not look at itself (`proc(5)`).
fn own_file(what: &'static str, source: std::io::Error) -> MonitorError {
    let remedy = match source.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "a process that changed its user is not dumpable: start it as that user, or call \
             prctl(PR_SET_DUMPABLE, 1) after setuid"
        }
        _ => "mount /proc",
    };
    MonitorError::Unavailable { what, remedy, source: Some(source) }
}

fn too_many() -> MonitorError {
    MonitorError::Unavailable {
        what: "another userfaultfd listener",
        remedy: "share one cache, or close some: a process can have 64 caches on userfaultfd",
        source: None,
    }
}

/// A thread in munmap waits for the reader, which valgrind would not let run.
fn under_valgrind() -> MonitorError {
    MonitorError::Unavailable {
        what: "userfaultfd events under valgrind",
        remedy: "none are needed there: without a monitor nothing is cached, or report changes yourself (manual)",
        source: None,
    }
}

/// Why there is no userfaultfd, and what to do.
fn explain(error: uffd::OpenError) -> MonitorError {
    let (what, remedy, source) = match error {
        uffd::OpenError::Features(e) => (
            "userfaultfd with WP_ASYNC",
            "use Linux 6.7 or newer, or the ebpf monitor, or report changes yourself (manual)",
            e,
        ),
        uffd::OpenError::Refused(e) if e.raw_os_error() == Some(libc::EMFILE) => {
            ("a file descriptor", "raise RLIMIT_NOFILE (ulimit -n)", e)
        }
        uffd::OpenError::Refused(e) if e.raw_os_error() == Some(libc::ENOSYS) => (
            "userfaultfd",
            "the kernel was built without CONFIG_USERFAULTFD, or seccomp hides the call: allow \
             userfaultfd in the container's seccomp profile, or use the ebpf monitor",
            e,
        ),
        uffd::OpenError::Refused(e) => (
            "userfaultfd",
            "seccomp or a security module refuses the call: allow userfaultfd in the container's \
             profile, or give the user access to /dev/userfaultfd, or use the ebpf monitor",
            e,
        ),
    };
    MonitorError::Unavailable { what, remedy, source: Some(source) }
}
