//! The self-test at start: a kernel (or a filter) that does not deliver an event makes
//! registrations stale silently, so each is tried before anything relies on it.

use pindown_core::{EventKind, MonitorError, Notifier, PageRange};

use super::arm::Armed;
use super::hub::{Hub, io};
use crate::sys::scratch::Scratch;

/// Raises each event on memory of its own.
pub(super) fn run(hub: &Hub) -> Result<(), MonitorError> {
    let heard = Notifier::detached();
    let listener = hub.attach(heard.clone())?;
    let result = each_event(hub, &heard);
    hub.detach(listener);
    result
}

fn each_event(hub: &Hub, heard: &Notifier) -> Result<(), MonitorError> {
    check(hub, heard, "MADV_DONTNEED", EventKind::Remove, |s| s.discard(s.all()))?;
    check(hub, heard, "mmap(MAP_FIXED)", EventKind::Unmap, |s| s.replace(s.all()))?;
    check(hub, heard, "mremap", EventKind::Remap, |mut s| s.relocate())?;
    check(hub, heard, "munmap", EventKind::Unmap, Scratch::unmap)
}

fn check(
    hub: &Hub,
    heard: &Notifier,
    event: &str,
    kind: EventKind,
    change: impl FnOnce(Scratch) -> std::io::Result<()>,
) -> Result<(), MonitorError> {
    let scratch = Scratch::new(4).map_err(|e| io("mmap for the self-test", e))?;
    let range = scratch.all();
    if let Armed::No(why) = hub.arm(range)? {
        return Err(missing(&format!("{event} ({why})")));
    }
    heard.take_detached();
    let before = heard.generation();
    change(scratch).map_err(|e| io("a system call of the self-test", e))?;
    // At once: the change has returned, so the word must have moved or be odd.
    let moved = heard.generation() != before;
    while heard.generation() % 2 == 1 {
        std::thread::yield_now();
    }
    let hears = |at: &(PageRange, EventKind)| at.1 == kind && at.0.contains(range);
    let seen = heard.take_detached().iter().any(|r| r.as_ref().is_none_or(hears));
    if moved && seen { Ok(()) } else { Err(missing(event)) }
}

fn missing(event: &str) -> MonitorError {
    MonitorError::SelfTest { event: event.into() }
}
