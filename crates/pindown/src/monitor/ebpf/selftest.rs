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
    /// The program that must have reported one besides, if there is such a program.
    hook: Option<usize>,
}

const fn step(name: &'static str, run: fn(&Tester<'_>) -> io::Result<bool>) -> Step {
    Step { name, run, hook: None }
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
    step("munmap", |t| t.anonymous(|m, _| gone(m.unmap()))),
    step("mmap MAP_FIXED", |t| t.anonymous(|m, _| kept(m.map_over(), m))),
    step("madvise MADV_DONTNEED", |t| t.anonymous(|m, _| kept(m.advise(libc::MADV_DONTNEED), m))),
    step("madvise MADV_GUARD_INSTALL", |t| t.anonymous(|m, _| kept(m.guard(), m))),
    step("mremap", |t| t.anonymous(|m, target| gone(m.move_to(target, false)))),
    step("mremap MREMAP_DONTUNMAP", |t| t.anonymous(|m, target| gone(m.move_to(target, true)))),
    step("mprotect", |t| t.anonymous(|m, _| kept(m.protect(), m))),
    step("ftruncate", |t| t.file(|f| f.set_len(0))),
    step("fallocate PUNCH_HOLE", |t| t.file(punch_hole)),
    Step {
        name: "munmap of a transparent huge page",
        run: |t| t.seen_after(Scratch::transparent_huge()?, |m| gone(m.unmap())),
        hook: Some(number::RMAP_PMD),
    },
    Step {
        name: "munmap of a huge page",
        run: |t| t.seen_after(Scratch::huge()?, |m| gone(m.unmap())),
        hook: Some(number::HUGETLB),
    },
];

/// Programs that something on each machine must wake.
const ALWAYS: [usize; 7] = [
    number::SYS_EXIT,
    number::PAGE_CACHE,
    number::ZAP,
    number::MOVE,
    number::PROTECT,
    number::RMAP,
    number::FLUSH,
];

/// Refuses a monitor that misses anything.
pub(super) fn run(monitor: &EbpfMonitor) -> Result<(), MonitorError> {
    let tester = Tester { monitor, notifier: Notifier::detached() };
    let mut exercised = ALWAYS.to_vec();
    for step in STEPS {
        match tester.try_step(step) {
            Tried::Seen => exercised.extend(step.hook),
            Tried::Impossible => {}
            Tried::Unseen => {
                let silent = silent(monitor, &ALWAYS).join(", ");
                return Err(MonitorError::SelfTest { event: format!("{} (silent: {silent})", step.name) });
            }
        }
    }
    exercised.extend(ask_through_ring().then_some(number::URING));
    match silent(monitor, &exercised).first() {
        Some(hook) => Err(MonitorError::SelfTest { event: format!("anything from {hook}") }),
        None => Ok(()),
    }
}

/// Attached programs among `exercised` that have reported nothing yet.
fn silent(monitor: &EbpfMonitor, exercised: &[usize]) -> Vec<String> {
    let status = &monitor.client().status;
    let all = monitor.client().service.hooks.iter();
    let quiet = all.filter(|(n, _)| exercised.contains(n) && status.seen[*n].load(Relaxed) == 0);
    quiet.map(|(_, name)| name.clone()).collect()
}

/// How a step went.
enum Tried {
    Seen,
    Unseen,
    /// The kernel refuses it here.
    Impossible,
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

impl Tester<'_> {
    fn try_step(&self, step: &Step) -> Tried {
        for _ in 0..TRIES {
            match (step.run)(self) {
                Ok(true) => return Tried::Seen,
                Ok(false) => {}
                Err(refused) => {
                    tracing::debug!("ebpf self-test: {} is not possible here: {refused}", step.name);
                    return Tried::Impossible;
                }
            }
        }
        Tried::Unseen
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
