//! The reader of the event queue.
//!
//! A thread that changes armed memory sleeps in the kernel until its event is read, and goes on the
//! moment it is. So the generation is made odd *before* the read: a lookup that starts after the
//! change returned finds the word odd or moved, never as it was.
//!
//! The rules for this thread, after its start: it allocates nothing, frees nothing, takes no lock,
//! logs nothing, panics never, and all signals are blocked. If it did any of this and the allocator
//! gave memory back to the kernel, it would wait for itself to read the event.

use std::sync::atomic::Ordering;

use pindown_core::{EventKind, Notifier, PageRange};

use super::hub::Hub;
use crate::sys::uffd::{Buffer, Event};

/// Reads in one pass, so that a storm of events does not keep the generation odd for long.
const READS: usize = 8;

/// Until the hub stops.
pub(super) fn run(hub: &Hub) {
    let mut buffer = Buffer::new();
    loop {
        let (ready, stopped) = hub.stop.wait_with(hub.fd.raw());
        if ready {
            pass(hub, &mut buffer);
        } else if stopped {
            return;
        }
    }
}

/// Odd, read, report, even.
fn pass(hub: &Hub, buffer: &mut Buffer) {
    let mut discards = false;
    hub.listeners.with(|listeners| {
        let all = || listeners.iter().flatten().copied();
        all().for_each(Notifier::begin);
        for _ in 0..READS {
            let n = buffer.read(hub.fd.raw());
            if n < 0 {
                hub.broken.store(true, Ordering::Release);
                all().for_each(Notifier::push_lost);
            }
            if n <= 0 {
                break;
            }
            for event in buffer.events(n as usize) {
                discards |= report(hub, event, all());
            }
        }
        all().for_each(Notifier::end);
    });
    if discards && let Some(helper) = hub.helper.get() {
        helper.unpark(); // a futex wake: no allocation, no lock
    }
}

/// Hands one event on. Whether its pages are yet to be discarded.
fn report<'n>(hub: &Hub, event: Event, listeners: impl Iterator<Item = &'n Notifier> + Clone) -> bool {
    let tell = |start, len_bytes, kind| {
        if let Some(range) = PageRange::clipped(start, len_bytes) {
            listeners.clone().for_each(|l| l.push(range, kind));
        }
    };
    match event {
        Event::Unmap(start, len) => tell(start, len, EventKind::Unmap),
        Event::Remap(from, to, len) => {
            tell(from, len, EventKind::Remap);
            tell(to, len, EventKind::Remap);
        }
        Event::Remove(start, len) => {
            // Before the word is even again: see the argument in `grace`.
            if let Some(range) = PageRange::clipped(start, len) {
                hub.grace.add(range);
            }
            tell(start, len, EventKind::Remove);
            return true;
        }
        Event::Unknown(_) => listeners.for_each(Notifier::push_lost),
    }
    false
}
