//! The start-up self-test: a hook that is missing misses silently, so every class of change is made
//! once, and every attached program must have reported one.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use pindown_core::{Access, Drained, EventKind, Monitor, MonitorError, Notifier, PageRange, Subscription};

use super::EbpfMonitor;
use super::hooks::number;
use crate::sys::bpf_scratch::{Scratch, punch_hole};

/// Pages of each test mapping.
const PAGES: usize = 4;
/// What is tried again when somebody else holds the lock on the address space, or memory is short.
const TRIES: usize = 3;

/// One class of change, made on memory that is watched.
struct Step {
    name: &'static str,
    run: fn(&Tester<'_>) -> io::Result<bool>,
}

struct Tester<'a> {
    monitor: &'a EbpfMonitor,
    notifier: Notifier,
}

/// What is left of the memory after the change. It is unmapped only once the change was looked for,
/// since unmapping is reported too.
type Changed = io::Result<Option<Scratch>>;

fn kept(done: io::Result<()>, memory: Scratch) -> Changed {
    done.map(|()| Some(memory))
}

fn gone(done: io::Result<()>) -> Changed {
    done.map(|()| None)
}

/// In order; a step that the kernel refuses (an old kernel, an empty pool of huge pages) is passed over.
const STEPS: &[Step] = &[
    Step { name: "munmap", run: |t| t.anonymous(|m, _| gone(m.unmap())) },
    Step { name: "mmap MAP_FIXED", run: |t| t.anonymous(|m, _| kept(m.map_over(), m)) },
    Step {
        name: "madvise MADV_DONTNEED",
        run: |t| t.anonymous(|m, _| kept(m.advise(libc::MADV_DONTNEED), m)),
    },
    Step { name: "madvise MADV_GUARD_INSTALL", run: |t| t.anonymous(|m, _| kept(m.guard(), m)) },
    Step { name: "mremap", run: |t| t.anonymous(|m, target| gone(m.move_to(target, false))) },
    Step { name: "mremap MREMAP_DONTUNMAP", run: |t| t.anonymous(|m, target| gone(m.move_to(target, true))) },
    Step { name: "mprotect", run: |t| t.anonymous(|m, _| kept(m.protect(), m)) },
    Step { name: "ftruncate", run: |t| t.file(|f| f.set_len(0)) },
    Step { name: "fallocate PUNCH_HOLE", run: |t| t.file(punch_hole) },
    Step {
        name: "munmap of a transparent huge page",
        run: |t| t.seen_after(Scratch::transparent_huge()?, |m| gone(m.unmap())),
    },
    Step { name: "munmap of a huge page", run: |t| t.seen_after(Scratch::huge()?, |m| gone(m.unmap())) },
];

/// Refuses a monitor that misses anything.
pub(super) fn run(monitor: &EbpfMonitor) -> Result<(), MonitorError> {
    let tester = Tester { monitor, notifier: Notifier::detached() };
    let unseen = |event: String| MonitorError::SelfTest { event };
    for step in STEPS {
        if !tester.tried(step) {
            return Err(unseen(step.name.to_owned()).into_named(monitor));
        }
    }
    let ring = ask_through_ring();
    match silent(monitor, ring).first() {
        Some(hook) => Err(unseen(format!("anything from {hook}"))),
        None => Ok(()),
    }
}

/// Attached programs that should have reported something by now and have not.
fn silent(monitor: &EbpfMonitor, ring: bool) -> Vec<String> {
    let status = &monitor.client().status;
    let exercised = |n: usize| match n {
        number::NONE | number::HUGETLB | number::RMAP_PMD => false, // not on every machine
        number::URING => ring,
        _ => true,
    };
    let all = monitor.client().service.hooks.iter();
    let quiet = all.filter(|(n, _)| exercised(*n) && status.seen[*n].load(Relaxed) == 0);
    quiet.map(|(_, name)| name.clone()).collect()
}

/// One advice that no kernel knows, through io_uring. False: no io_uring for this process, so nothing
/// can go unseen through it.
#[cfg(feature = "io-uring")]
fn ask_through_ring() -> bool {
    Scratch::anonymous(1).and_then(|memory| memory.ask_through_ring()).is_ok()
}

#[cfg(not(feature = "io-uring"))]
fn ask_through_ring() -> bool {
    false
}

trait IntoNamed {
    fn into_named(self, monitor: &EbpfMonitor) -> Self;
}

impl IntoNamed for MonitorError {
    /// Adds the programs that said nothing, which is where to look.
    fn into_named(self, monitor: &EbpfMonitor) -> Self {
        match self {
            Self::SelfTest { event } => {
                Self::SelfTest { event: format!("{event} (silent: {})", silent(monitor, false).join(", ")) }
            }
            other => other,
        }
    }
}

impl Tester<'_> {
    fn tried(&self, step: &Step) -> bool {
        (0..TRIES).any(|_| match (step.run)(self) {
            Ok(seen) => seen,
            Err(refused) => {
                tracing::debug!("ebpf self-test: {} is not possible here: {refused}", step.name);
                true
            }
        })
    }

    fn anonymous(&self, change: impl FnOnce(Scratch, &Scratch) -> Changed) -> io::Result<bool> {
        let target = Scratch::anonymous(PAGES)?;
        self.seen_after(Scratch::anonymous(PAGES)?, |m| change(m, &target))
    }

    fn file(&self, cut: impl FnOnce(&std::fs::File) -> io::Result<()>) -> io::Result<bool> {
        let (file, memory) = Scratch::memfd(PAGES)?;
        self.seen_after(memory, |m| kept(cut(&file), m))
    }

    /// Watches the memory, changes it, and looks whether that was reported.
    fn seen_after(&self, memory: Scratch, change: impl FnOnce(Scratch) -> Changed) -> io::Result<bool> {
        let range = memory.range();
        let access = Access::READ_WRITE | Access::REMOTE_WRITE;
        let subscribed = self.monitor.subscribe(range, access).map_err(io::Error::other)?;
        self.take(range);
        let changed = change(memory);
        let seen = self.take(range) && subscribed == Subscription::Events;
        self.monitor.unsubscribe(range);
        changed.map(|_| seen)
    }

    /// Whether what was reported since the last call touches `range`.
    fn take(&self, range: PageRange) -> bool {
        let drained = self.monitor.drain(&self.notifier);
        let taken: Vec<Option<(PageRange, EventKind)>> = self.notifier.take_detached();
        matches!(drained, Drained::UpTo(_)) && taken.iter().any(|t| t.is_none_or(|(r, _)| r.overlaps(range)))
    }
}
