//! `pindown_watch`: notifications alone, for a registration cache of your own.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, PoisonError};

use pindown::MonitorChoice;
use pindown::watch::{Event, Extent, Watch, WatchError};

use crate::boundary::{enter, enter_or, enter_unit, place};
use crate::cache::range;
use crate::failure::{Failure, Result};
use crate::handle::{free, get, give_new, handle};
use crate::status::pindown_status::{self, *};

/// A watch, and the rest of a batch that did not fit the caller's array.
pub(crate) struct Watching {
    watch: Watch,
    unread: Mutex<VecDeque<Event>>,
}

handle!(
    /// Watched regions of address space.
    pindown_watch(Box<Watching>) = b"pd.watch"
);

/// A region's memory is not what it was.
pub const PINDOWN_EVENT_CHANGED: u32 = 1;
/// The end of a batch: it held everything up to `generation`.
pub const PINDOWN_EVENT_END: u32 = 2;

/// One record of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct pindown_watch_event {
    /// PINDOWN_EVENT_*; ignore those you do not know.
    pub kind: u32,
    /// Of a change: 1: all of the region, or more than is known; 0: exactly `len` bytes at `addr`.
    pub whole: u32,
    /// Of a change: as registered.
    pub cookie: u64,
    /// Of an exact change: its first page.
    pub addr: usize,
    /// Of an exact change: its length in bytes.
    pub len: usize,
    /// Of an end: compare the generation word with this from now on.
    pub generation: u64,
}

fn to_c(event: Event) -> Option<pindown_watch_event> {
    let none = pindown_watch_event { kind: 0, whole: 0, cookie: 0, addr: 0, len: 0, generation: 0 };
    let kind = PINDOWN_EVENT_CHANGED;
    match event {
        Event::Changed { cookie, extent: Extent::Whole } => {
            Some(pindown_watch_event { kind, whole: 1, cookie, ..none })
        }
        Event::Changed { cookie, extent: Extent::Exact(pages) } => {
            let (addr, len) = (pages.start(), pages.len_bytes());
            Some(pindown_watch_event { kind, cookie, addr, len, ..none })
        }
        Event::End { generation } => {
            Some(pindown_watch_event { kind: PINDOWN_EVENT_END, generation, ..none })
        }
        _ => None,
    }
}

/// Begins to watch, with a pindown_monitor: auto, uffd, ebpf. PINDOWN_E_MONITOR when it does not start here.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_watch_open(
    monitor: u32,
    watch: Option<&mut MaybeUninit<*mut pindown_watch>>,
) -> pindown_status {
    enter_unit(|| {
        give_new(watch, || {
            let watch = open(crate::builder::monitor(monitor)?)?;
            Ok(Box::new(Watching { watch, unread: Mutex::default() }))
        })
    })
}

fn open(choice: MonitorChoice) -> Result<Watch> {
    Ok(match choice {
        MonitorChoice::Auto => Watch::open()?,
        MonitorChoice::Uffd => Watch::with(std::sync::Arc::new(pindown::monitor::Uffd::new()))?,
        MonitorChoice::Ebpf => {
            let monitor = pindown::monitor::ebpf::EbpfMonitor::open(&Default::default())?;
            Watch::with(std::sync::Arc::new(monitor))?
        }
        _ => return Err(Failure::invalid("a watch needs a monitor that sees by itself: auto, uffd or ebpf")),
    })
}

/// Ends and frees it. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_watch_free(watch: Option<Box<pindown_watch>>) -> pindown_status {
    free(watch)
}

/// Watches `len` bytes at `addr`, in whole pages, under `cookie`. Do this before you pin: what changes from the return on is
/// reported. PINDOWN_E_COOKIE: the cookie is in use; PINDOWN_E_NOT_COVERED: not every change would be seen.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_watch_register(
    watch: Option<&pindown_watch>,
    addr: *const c_void,
    len: usize,
    cookie: u64,
) -> pindown_status {
    enter_unit(|| {
        get(watch)?.watch.register(range(addr, len)?, cookie)?;
        Ok(())
    })
}

/// Ends the region; an event not yet read is dropped. PINDOWN_NOT_FOUND: the cookie names no region.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_watch_unregister(watch: Option<&pindown_watch>, cookie: u64) -> pindown_status {
    enter(|| {
        let watching = get(watch)?;
        match watching.watch.unregister(cookie) {
            Err(WatchError::NoSuchCookie(_)) => return Ok(PINDOWN_NOT_FOUND),
            other => other?,
        }
        let is_of = |event: &Event| matches!(event, Event::Changed { cookie: c, .. } if *c == cookie);
        watching.unread().retain(|event| !is_of(event));
        Ok(PINDOWN_OK)
    })
}

impl Watching {
    fn unread(&self) -> std::sync::MutexGuard<'_, VecDeque<Event>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The word that moves with each change, before the changing call returns. What differs from the last end's `generation`
/// means: read, before you use anything. 0 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_watch_generation(watch: Option<&pindown_watch>) -> u64 {
    enter_or(0, || Ok(get(watch)?.watch.generation()))
}

/// Where that word is, so that a check is one load (acquire: C11 atomic_load_explicit, or __atomic_load_n). Valid until
/// the watch is freed. In a forked child it means nothing. NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_watch_generation_word(watch: Option<&pindown_watch>) -> *const u64 {
    enter_or(std::ptr::null(), || Ok(get(watch)?.watch.generation_word().as_ptr().cast_const()))
}

/// Fills `events` with up to `capacity` of what changed since the last read; `count` says how many. The last event of a
/// batch is PINDOWN_EVENT_END; if it is not there, the array was too short: read again. Never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pindown_watch_read(
    watch: Option<&pindown_watch>,
    events: *mut pindown_watch_event,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> pindown_status {
    enter(|| {
        let count = place(count, "count")?;
        count.write(0);
        if events.is_null() || capacity == 0 {
            return Err(Failure::invalid(
                "events is NULL or capacity 0: pass an array with room for an event",
            ));
        }
        let watching = get(watch)?;
        // SAFETY: room for that many events, by the header.
        let out = unsafe { std::slice::from_raw_parts_mut(events.cast::<MaybeUninit<_>>(), capacity) };
        count.write(watching.read(out));
        Ok(PINDOWN_OK)
    })
}

impl Watching {
    fn read(&self, out: &mut [MaybeUninit<pindown_watch_event>]) -> usize {
        let mut unread = self.unread();
        if unread.is_empty() {
            let mut batch = Vec::new();
            self.watch.read(&mut batch);
            unread.extend(batch);
        }
        let most = unread.len().min(out.len());
        let known = unread.drain(..most).filter_map(to_c);
        out.iter_mut().zip(known).map(|(place, event)| place.write(event)).count()
    }
}

/// A descriptor that is readable after a change, until the next read; for waiting only, it may come later than the word
/// moves. The watch's: do not read or close it. -1 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn pindown_watch_fd(watch: Option<&pindown_watch>) -> i32 {
    enter_or(-1, || Ok(get(watch)?.watch.as_fd().as_raw_fd()))
}
