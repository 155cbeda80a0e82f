//! [`Uffd`]: changes of address space by `userfaultfd(2)`, unprivileged.

mod arm;
mod evidence;
mod grace;
mod helper;
mod hub;
mod reader;
mod selftest;
mod stamp;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use pindown_core::{
    Access, Cover, Coverage, Delivery, MappingKind, Monitor, MonitorError, Notifier, PageRange, Stamp,
    Subscription, Validity,
};

use self::arm::{Armed, Ground};
use self::hub::{Hub, Listener};
use crate::sys::fork::Descriptor;
use crate::sys::process::Process;
use crate::sys::{files, uffd};

/// How long a lookup waits for changes under way: the reader and the changing thread need some
/// 10 µs. An unmapping of much memory takes longer than is worth waiting for.
const SETTLE_YIELDS: u32 = 64;
const SETTLE_SLEEPS: u32 = 4;
const SETTLE_SLEEP: Duration = Duration::from_micros(50);

/// What userfaultfd does not report for anonymous memory.
const WAIVED: &[&str] = &["MADV_GUARD_INSTALL", "shmat(SHM_REMAP)"];

/// The userfaultfd monitor (Linux 6.7; `userfaultfd(2)`, `ioctl_userfaultfd(2)`).
///
/// Mappings are armed whole, in write-protect mode, and nothing is ever write-protected: no fault
/// is raised, only the events about unmapping, moving and discarding are used. The thread that
/// changes armed memory waits in the kernel until the event is read.
///
/// | memory | covered |
/// |---|---|
/// | private anonymous, brk heap, stacks, THP, private anonymous huge pages | by events; `MADV_GUARD_INSTALL` and `shmat(SHM_REMAP)` over it are waived |
/// | memfd and other tmpfs files, shared, with a descriptor open (Linux 6.13) | checked at each lookup |
/// | memfd sealed against losing pages (`F_SEAL_SHRINK` and `F_SEAL_FUTURE_WRITE` or `F_SEAL_WRITE`), huge pages too | checked at each lookup |
/// | shared anonymous, SysV, other files, private file mappings | not cached |
///
/// # Costs
///
/// Each lookup makes one ioctl (0.1 to 0.25 µs, see [`settle`](Monitor::settle)); a memfd's
/// makes two more. Arming takes about 1 µs at a miss. munmap of armed memory waits for the reader:
/// 4 µs become 7 (same CPU) to 42 µs. Armed anonymous memory is not given multi-size THP by the
/// kernel, and first reads of armed file pages are slow; `subscribe` therefore populates memfds.
///
/// # Discards
///
/// MADV_DONTNEED and the like are reported before the pages go. Their range is used uncached until
/// every thread has been seen outside madvise, usually for a few milliseconds; as long as some
/// thread stays in one madvise call (or an io_uring worker runs and its state cannot be read), it
/// stays so. A process that shares the address space by raw `clone(CLONE_VM)`, or a vfork child
/// that discards its parent's memory before exec, is not watched: the one exception.
///
/// # Fork
///
/// A forked child inherits nothing: its descriptor is closed by an atfork handler, and
/// [`subscribe`](Monitor::subscribe) says [`MonitorError::Forked`]. It may start a monitor of its
/// own.
#[derive(Debug)]
pub struct Uffd {
    options: UffdOptions,
    process: Process,
    multigrain_ctime: bool,
    joined: RwLock<Option<(Arc<Hub>, Listener)>>,
    /// For [`settle`](Monitor::settle), without the lock.
    descriptor: OnceLock<Descriptor>,
}

/// How a [`Uffd`] monitor works.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct UffdOptions {
    /// Ask at each lookup whether a change is under way (one ioctl). Without it, a thread that maps
    /// memory at an address which another thread is still unmapping can find the old registration.
    /// Only for programs in which no two threads map and unmap at a time. Default: true.
    pub settle: bool,
    /// For the test that shows what the grace period is for. Unsound when false; not in release builds.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    pub grace: bool,
}

const IN_GRACE: Subscription =
    Subscription::Uncacheable("grace period: its pages were just discarded, and the call may not be over");

impl Default for UffdOptions {
    fn default() -> Self {
        Self {
            settle: true,
            #[cfg(debug_assertions)]
            grace: true,
        }
    }
}

impl Uffd {
    /// A monitor that starts with its cache.
    pub fn new() -> Self {
        Self::with_options(UffdOptions::default())
    }

    /// A monitor with other than the default options.
    pub fn with_options(options: UffdOptions) -> Self {
        Self {
            options,
            process: Process::current(),
            multigrain_ctime: files::has_multigrain_ctime(),
            joined: RwLock::new(None),
            descriptor: OnceLock::new(),
        }
    }

    fn is_forked(&self) -> bool {
        !self.process.is_current()
    }

    /// Arms `range`, or says why it is not to be cached.
    fn watch(&self, hub: &Hub, range: PageRange) -> Result<Subscription, MonitorError> {
        match hub.survey(range)? {
            Ground::Refused(why) => Ok(Subscription::Uncacheable(why)),
            Ground::File(found) => {
                let stamp = stamp::of(&hub.procmap, &found, range, self.multigrain_ctime);
                if stamp.is_ok() {
                    hub.arm_if_possible(&found.vma);
                }
                Ok(stamp.map_or_else(Subscription::Uncacheable, Subscription::Checked))
            }
            // Looked at before too, since arming takes the mmap lock for writing.
            Ground::Anonymous { .. } if self.is_in_grace(hub, range) => Ok(IN_GRACE),
            Ground::Anonymous { .. } => Ok(match hub.arm(range)? {
                Armed::No(why) => Subscription::Uncacheable(why),
                Armed::Yes if self.is_in_grace(hub, range) => IN_GRACE,
                Armed::Yes => Subscription::Events,
            }),
        }
    }

    fn is_in_grace(&self, hub: &Hub, range: PageRange) -> bool {
        #[cfg(debug_assertions)]
        if !self.options.grace {
            return false;
        }
        hub.grace.contains(range)
    }
}

impl Default for Uffd {
    fn default() -> Self {
        Self::new()
    }
}

impl Monitor for Uffd {
    fn name(&self) -> &'static str {
        "uffd"
    }

    fn coverage(&self) -> Coverage {
        use MappingKind::*;
        let shmem = if self.multigrain_ctime {
            "a descriptor of the file is open, or it is sealed (F_SEAL_SHRINK, F_SEAL_FUTURE_WRITE)"
        } else {
            "it is sealed (F_SEAL_SHRINK, F_SEAL_FUTURE_WRITE)"
        };
        let rows = vec![
            (Anonymous, Cover::Waived(WAIVED)),
            (SharedAnonymous, Cover::No("another process can take its pages unseen: use a memfd")),
            (Shmem, Cover::If(shmem)),
            (Hugetlb, Cover::If("private and anonymous, or a memfd sealed against losing pages")),
            (PrivateFile, Cover::No("truncation by others is not seen")),
            (SharedFile, Cover::If("it lies in a tmpfs and a descriptor of it is open")),
            (Special, Cover::No("device and secret memory cannot be pinned")),
        ];
        Coverage { rows }
    }

    fn delivery(&self) -> Delivery {
        Delivery::BeforeReturn
    }

    fn start(&self, notifier: Notifier) -> Result<(), MonitorError> {
        if self.is_forked() {
            return Err(MonitorError::Forked);
        }
        let mut joined = self.joined.write().unwrap_or_else(PoisonError::into_inner);
        if joined.is_none() {
            let (hub, listener) = Hub::join(notifier)?;
            self.descriptor.get_or_init(|| hub.fd.descriptor());
            *joined = Some((hub, listener));
        }
        Ok(())
    }

    fn subscribe(&self, range: PageRange, _access: Access) -> Result<Subscription, MonitorError> {
        if self.is_forked() {
            return Err(MonitorError::Forked); // before the lock, which may have been held at the fork
        }
        // Held meanwhile, so that nothing is armed after `stop` disarmed everything.
        let joined = self.joined.read().unwrap_or_else(PoisonError::into_inner);
        match &*joined {
            None => Ok(Subscription::Uncacheable("the monitor is not running")),
            Some((hub, _)) if hub.is_broken() => {
                Ok(Subscription::Uncacheable("the userfaultfd cannot be read any more"))
            }
            Some((hub, _)) => self.watch(hub, range),
        }
    }

    fn validate(&self, range: PageRange, stamp: Stamp) -> Validity {
        // Cheaper than asking for the process: a forked child's descriptor is closed.
        if self.descriptor.get().is_none_or(|d| d.raw() < 0) {
            return Validity::Changed;
        }
        let joined = self.joined.read().unwrap_or_else(PoisonError::into_inner);
        match &*joined {
            Some((hub, _)) if stamp::is_current(&hub.procmap, range, stamp) => Validity::Valid,
            _ => Validity::Changed,
        }
    }

    fn must_settle(&self) -> bool {
        self.options.settle
    }

    fn settle(&self) -> bool {
        let Some(descriptor) = self.descriptor.get() else { return true };
        for attempt in 0..SETTLE_YIELDS + SETTLE_SLEEPS {
            match uffd::is_changing(descriptor.raw()) {
                Ok(false) => return true,
                Ok(true) if attempt < SETTLE_YIELDS => std::thread::yield_now(),
                Ok(true) => std::thread::sleep(SETTLE_SLEEP),
                Err(_) => return false,
            }
        }
        false
    }

    fn stop(&self) {
        if self.is_forked() {
            return; // the threads are the parent's
        }
        let joined = self.joined.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((hub, listener)) = joined {
            hub.leave(listener);
        }
    }
}

impl Drop for Uffd {
    fn drop(&mut self) {
        self.stop();
    }
}
