//! The ummunotify interface on its own, for those who have a registration cache already.
//!
//! Register ranges under cookies; compare one [generation word](Watch::generation) at each use of your
//! cache; when it moved, [`read`](Watch::read) which regions changed. A change is visible in the word
//! before the changing call returns, so a registration that passes the comparison is right.
//!
//! ```no_run
//! # fn pin(_: pindown::PageRange) {}
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use pindown::{PageRange, watch::{Event, Watch}};
//! let watch = Watch::open()?;
//! let buffer = vec![0u8; 1 << 20];
//! let range = PageRange::covering(buffer.as_ptr() as usize, buffer.len())?;
//! watch.register(range, 7)?; // first: what changes from here on is reported
//! pin(range);
//! let mut events = Vec::new();
//! let seen = watch.read(&mut events);
//! assert!(watch.generation() == seen, "unless something changed since");
//! # Ok(()) }
//! ```
//!
//! Defined: an overflow (or anything lost) reports every region as [`Extent::Whole`]. A cookie names one
//! region; registering it twice is [`WatchError::CookieInUse`]. Regions may overlap. A region stays
//! registered when it changes, also when all of it is unmapped, and reports what is mapped there later.
//! A range of which nothing is mapped is refused by userfaultfd and the tracepoint variant of eBPF; the
//! fexit variant watches it as if it had just been unmapped.
//! In a forked child the generation never equals that of a batch, each read reports every region (or none by
//! name, if the fork caught another thread inside the watch), and nothing can be registered: open another.
//!
//! With userfaultfd one thing is not covered: a thread that is given the address of a mapping whose munmap
//! has not returned yet, in another thread, may come before the report. The eBPF monitor has no such gap.

mod regions;
#[cfg(test)]
mod tests;
mod word;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pindown_core::{Access, Delivery, Drained, Monitor, MonitorError, Notifier, PageRange, Subscription};

use self::regions::Regions;
use crate::sys::eventfd::EventFd;
use crate::sys::process::Process;

/// How much of a region changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// One change: these pages of it.
    Exact(PageRange),
    /// Several changes, or more than is known: take it that all of it changed.
    Whole,
}

/// One record of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The region's memory is not what it was.
    Changed {
        /// As registered.
        cookie: u64,
        /// How much of it.
        extent: Extent,
    },
    /// The end of a batch: it held everything up to this value of the generation word.
    End {
        /// Compare [`Watch::generation`] with this from now on.
        generation: u64,
    },
}

/// Why a region is not watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// No monitor starts here.
    #[error("no monitor starts here: {0}")]
    Monitor(#[from] MonitorError),
    /// The monitor does not see every change of such memory, so it promises nothing.
    #[error("{range} cannot be watched: {why}; register and deregister it at each use")]
    NotCovered {
        /// The range.
        range: PageRange,
        /// What would go unseen.
        why: &'static str,
    },
    /// The cookie names another region.
    #[error("cookie {0} is in use: unregister it first")]
    CookieInUse(u64),
    /// The cookie names no region.
    #[error("cookie {0} names no region")]
    NoSuchCookie(u64),
    /// No descriptor for poll.
    #[error("eventfd failed: {0}; raise `ulimit -n`")]
    Io(#[from] io::Error),
}

/// See the [module](self). Share it between threads by reference.
#[derive(Debug)]
pub struct Watch {
    monitor: Arc<dyn Monitor>,
    notifier: Notifier,
    regions: Mutex<Regions>,
    bell: Arc<EventFd>,
    process: Process,
}

/// What a forked child's copy says: no batch's generation equals it.
const FORKED: u64 = u64::MAX;

impl Watch {
    /// With the best monitor that starts here: eBPF (own capabilities or a helper), else userfaultfd.
    ///
    /// # Errors
    ///
    /// [`WatchError::Monitor`] when none does; it says what the last one lacks.
    pub fn open() -> Result<Self, WatchError> {
        let mut chosen = crate::monitor::auto();
        match (chosen.monitor.delivery(), chosen.passed_over.pop()) {
            (Delivery::BeforeReturn, _) => Self::with(chosen.monitor),
            (_, Some((_, error))) => Err(error.into()),
            (_, None) => Err(WatchError::Monitor(MonitorError::Unavailable {
                what: "monitor in this build",
                remedy: "build with the feature `uffd` or `ebpf`",
                source: None,
            })),
        }
    }

    /// With a monitor that has not been started.
    pub fn with(monitor: Arc<dyn Monitor>) -> Result<Self, WatchError> {
        let notifier = Notifier::detached();
        monitor.start(notifier.clone())?;
        let bell = Arc::new(EventFd::new()?);
        ring_on_change(&monitor, &notifier, &bell)?;
        let process = Process::current();
        Ok(Self { monitor, notifier, regions: Mutex::default(), bell, process })
    }

    /// The monitor in use.
    pub fn monitor(&self) -> &dyn Monitor {
        &*self.monitor
    }

    /// The word that moves with each change: one acquire load. What differs from the last
    /// [`Event::End`] means: read, before you use anything.
    #[inline]
    pub fn generation(&self) -> u64 {
        match self.monitor.generation() {
            _ if !self.process.is_current() => FORKED,
            Some(word) => word.load(Ordering::Acquire),
            None => self.notifier.generation(),
        }
    }

    fn regions(&self) -> MutexGuard<'_, Regions> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to watch `range` under `cookie`. Do this before you pin: what changes from the return on
    /// is reported.
    ///
    /// # Errors
    ///
    /// [`WatchError::NotCovered`], [`WatchError::CookieInUse`], or the monitor's.
    pub fn register(&self, range: PageRange, cookie: u64) -> Result<(), WatchError> {
        if !self.process.is_current() {
            return Err(MonitorError::Forked.into());
        }
        if !self.regions().insert(cookie, range) {
            return Err(WatchError::CookieInUse(cookie));
        }
        let why = match self.monitor.subscribe(range, Access::READ_WRITE) {
            Ok(Subscription::Events) => return Ok(()),
            Ok(Subscription::Checked(_)) => "this monitor would have to be asked at each use",
            Ok(Subscription::Uncacheable(why)) => why,
            Ok(_) => "the monitor's answer is not understood",
            Err(e) => {
                self.regions().remove(cookie);
                return Err(e.into());
            }
        };
        self.regions().remove(cookie);
        self.monitor.unsubscribe(range);
        Err(WatchError::NotCovered { range, why })
    }

    /// Ends it; an event not yet read is dropped.
    ///
    /// # Errors
    ///
    /// [`WatchError::NoSuchCookie`]; in a forked child [`MonitorError::Forked`].
    pub fn unregister(&self, cookie: u64) -> Result<(), WatchError> {
        if !self.process.is_current() {
            return Err(MonitorError::Forked.into());
        }
        let range = self.regions().remove(cookie).ok_or(WatchError::NoSuchCookie(cookie))?;
        self.monitor.unsubscribe(range);
        Ok(())
    }

    /// Appends what changed since the last read, at most one event a region, and an [`Event::End`];
    /// returns that one's generation. Never blocks for a change: no change is a batch of one.
    pub fn read(&self, events: &mut Vec<Event>) -> u64 {
        if !self.process.is_current() {
            return self.read_in_child(events);
        }
        let mut regions = self.regions();
        self.bell.lower();
        let own = self.even_generation();
        let (external, mut lost) = match self.monitor.drain(&self.notifier) {
            Drained::UpTo(generation) => (generation, false),
            Drained::Lost(generation) => (generation, true),
        };
        for change in self.notifier.take_detached() {
            match change {
                Some((range, _)) => regions.mark(range),
                None => lost = true,
            }
        }
        if lost {
            regions.mark_all();
        }
        let generation = if self.monitor.generation().is_some() { external } else { own };
        end(regions, events, generation)
    }

    /// Everything changed. The fork may have caught another thread with the regions locked, for ever: then
    /// they are not named, and the generation alone, which never matches, says that nothing may be used.
    fn read_in_child(&self, events: &mut Vec<Event>) -> u64 {
        let Ok(mut regions) = self.regions.try_lock() else {
            events.push(Event::End { generation: FORKED - 1 });
            return FORKED - 1;
        };
        regions.mark_all();
        end(regions, events, FORKED - 1)
    }

    /// Odd while the monitor's reader is between reading an event and pushing it, which it does
    /// without blocking.
    fn even_generation(&self) -> u64 {
        loop {
            match self.notifier.generation() {
                even if even % 2 == 0 => return even,
                _ => std::thread::yield_now(),
            }
        }
    }
}

/// Moves what is to be reported to `events`.
fn end(mut regions: MutexGuard<'_, Regions>, events: &mut Vec<Event>, generation: u64) -> u64 {
    regions.take(|cookie, extent| events.push(Event::Changed { cookie, extent }));
    events.push(Event::End { generation });
    generation
}

impl AsFd for Watch {
    /// Readable after a change, until the next [`read`](Watch::read). For waiting only: it may come
    /// later than the word moves.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.readiness().unwrap_or_else(|| self.bell.as_fd())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return; // the thread below is the parent's
        }
        self.monitor.stop();
        self.notifier.lost(); // ends the thread below
    }
}

/// A monitor without a descriptor of its own wakes a thread, which rings the bell.
fn ring_on_change(monitor: &Arc<dyn Monitor>, notifier: &Notifier, bell: &Arc<EventFd>) -> io::Result<()> {
    if monitor.readiness().is_some() {
        return Ok(());
    }
    let (notifier, bell) = (notifier.clone(), Arc::downgrade(bell));
    crate::sys::stay_loaded::stay_loaded();
    let ring = move || {
        crate::sys::block_signals();
        while let Some(bell) = bell.upgrade() {
            notifier.sleep_detached(std::time::Duration::from_millis(100)).then(|| bell.raise());
        }
    };
    std::thread::Builder::new().name("pindown-watch".into()).spawn(ring).map(drop)
}
