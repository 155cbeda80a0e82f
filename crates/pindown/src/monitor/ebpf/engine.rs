//! [`Engine`]: attached programs and the clients they serve. Lives in whoever has the capabilities:
//! the process itself, or the helper.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pindown_core::MonitorError;

use super::hooks::Variant;
use super::load::{Loaded, load};
use crate::sys::bpf::{self, MapShape};
use crate::sys::bpf_pages::{Filter, SLOTS, SLOTS_PER_MM, Status};
use crate::sys::fork::PrivateFd;

/// The smallest and the largest ring a client may have, in bytes. A record takes 32.
pub(crate) const RING_BYTES: std::ops::RangeInclusive<usize> = 4096..=1 << 20;
/// The usual size.
pub(crate) const DEFAULT_RING_BYTES: usize = 1 << 18;

/// One client's maps and number.
#[derive(Debug)]
pub(crate) struct SlotFds {
    pub(crate) slot: u32,
    pub(crate) status: OwnedFd,
    pub(crate) filter: OwnedFd,
    pub(crate) ring: OwnedFd,
    pub(crate) ring_bytes: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Engine {
    loaded: Loaded,
    /// Held over the programs' requests, which have one mailbox, but not while maps are made: the
    /// kernel waits for a grace period for each that enters an outer map.
    slots: Mutex<Vec<Slot>>,
}

/// A client's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Free,
    /// Being filled or emptied.
    Reserved,
    /// Reports changes of this address space.
    Tracks(u64),
}

static OWN: Mutex<Weak<Engine>> = Mutex::new(Weak::new());

impl Engine {
    pub(crate) fn new(wanted: Option<Variant>, hidden: Option<&str>) -> Result<Self, MonitorError> {
        let loaded = load(wanted, hidden)?;
        Ok(Self { loaded, slots: Mutex::new(vec![Slot::Free; SLOTS as usize]) })
    }

    /// This process's engine: one set of programs however many monitors it has. Test switches get
    /// one of their own.
    pub(crate) fn own(wanted: Option<Variant>, hidden: Option<&str>) -> Result<Arc<Self>, MonitorError> {
        if hidden.is_some() {
            return Self::new(wanted, hidden).map(Arc::new);
        }
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(engine) = own.upgrade().filter(|e| wanted.is_none_or(|w| w == e.variant())) {
            return Ok(engine);
        }
        let engine = Arc::new(Self::new(wanted, None)?);
        *own = Arc::downgrade(&engine);
        Ok(engine)
    }

    pub(crate) fn variant(&self) -> Variant {
        self.loaded.variant
    }

    /// What keeps the programs attached.
    pub(crate) fn links(&self) -> &[PrivateFd] {
        &self.loaded.links
    }

    /// The names of what is attached, each with its number, for the self-test.
    pub(crate) fn hooks(&self) -> Vec<(usize, String)> {
        self.loaded.hooks.iter().map(|h| (h.number, h.name())).collect()
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to report changes of the address space of the process behind `pidfd`.
    ///
    /// The address space is looked up again after it was entered: only if it is still that process's
    /// are the maps handed out, so nobody is told of memory that a later owner of the pointer has.
    pub(crate) fn enrol(&self, pidfd: BorrowedFd<'_>, ring_bytes: usize) -> io::Result<SlotFds> {
        let slot = self.reserve()?;
        let entered = self.new_maps(slot, ring_bytes).and_then(|fds| self.enter(pidfd, slot).map(|()| fds));
        if entered.is_err() {
            self.release(slot)?;
        }
        entered
    }

    fn reserve(&self) -> io::Result<u32> {
        let mut slots = self.slots();
        let free = slots.iter().position(|s| *s == Slot::Free);
        let slot = free.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC))?;
        slots[slot] = Slot::Reserved;
        Ok(slot as u32)
    }

    fn enter(&self, pidfd: BorrowedFd<'_>, slot: u32) -> io::Result<()> {
        let mut slots = self.slots();
        let mm = self.find_mm(pidfd)?;
        slots[slot as usize] = Slot::Tracks(mm);
        self.track(mm, slot)?;
        if self.find_mm(pidfd)? == mm { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    }

    /// Ends what `enrol` began. The client's own descriptors stay valid; nothing is written to them.
    pub(crate) fn release(&self, slot: u32) -> io::Result<()> {
        let tracked = std::mem::replace(&mut self.slots()[slot as usize], Slot::Reserved);
        let forgotten = match tracked {
            Slot::Tracks(mm) => self.forget(mm, slot),
            _ => Ok(()),
        };
        let maps = &self.loaded.maps;
        for outer in [&maps.status_of, &maps.filter_of, &maps.ring_of] {
            bpf::map_delete(outer.as_fd(), &slot.to_ne_bytes())?;
        }
        self.slots()[slot as usize] = Slot::Free;
        forgotten
    }

    fn new_maps(&self, slot: u32, ring_bytes: usize) -> io::Result<SlotFds> {
        let page = |value_bytes: usize| MapShape {
            kind: bpf::MAP_ARRAY,
            key_bytes: 4,
            value_bytes: value_bytes as u32,
            entries: 1,
            flags: bpf::F_MMAPABLE,
        };
        let ring = MapShape {
            kind: bpf::MAP_RINGBUF,
            key_bytes: 0,
            value_bytes: 0,
            entries: ring_bytes as u32,
            flags: 0,
        };
        let fds = SlotFds {
            slot,
            status: bpf::map_create(page(size_of::<Status>()))?,
            filter: bpf::map_create(page(size_of::<Filter>()))?,
            ring: bpf::map_create(ring)?,
            ring_bytes,
        };
        bpf::map_freeze(fds.status.as_fd())?;
        let maps = &self.loaded.maps;
        for (outer, inner) in
            [(&maps.status_of, &fds.status), (&maps.filter_of, &fds.filter), (&maps.ring_of, &fds.ring)]
        {
            bpf::map_update(outer.as_fd(), &slot.to_ne_bytes(), &inner.as_raw_fd().to_ne_bytes())?;
        }
        Ok(fds)
    }

    fn find_mm(&self, pidfd: BorrowedFd<'_>) -> io::Result<u64> {
        let request = self.loaded.maps.request.as_fd();
        bpf::map_update(request, &0u32.to_ne_bytes(), &[0; 16])?;
        bpf::run_iterator(self.loaded.find_mm.as_fd(), pidfd)?;
        let mut answer = [0u8; 16];
        bpf::map_lookup(request, &0u32.to_ne_bytes(), &mut answer)?;
        match u64::from_ne_bytes(answer[8..].try_into().expect("eight bytes")) {
            0 => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            mm => Ok(mm),
        }
    }

    fn track(&self, mm: u64, slot: u32) -> io::Result<()> {
        let mut tracked = self.tracked(mm)?;
        if tracked.len() == SLOTS_PER_MM {
            return Err(io::Error::from_raw_os_error(libc::EUSERS));
        }
        tracked.push(slot);
        self.set_tracked(mm, &tracked)
    }

    fn tracked(&self, mm: u64) -> io::Result<Vec<u32>> {
        let mut value = [0u8; 4 * (1 + SLOTS_PER_MM)];
        if !bpf::map_lookup(self.loaded.maps.mms.as_fd(), &mm.to_ne_bytes(), &mut value)? {
            return Ok(Vec::new());
        }
        let words: Vec<u32> =
            value.chunks_exact(4).map(|w| u32::from_ne_bytes(w.try_into().expect("four bytes"))).collect();
        Ok(words[1..=words[0] as usize].to_vec())
    }

    fn set_tracked(&self, mm: u64, slots: &[u32]) -> io::Result<()> {
        let mms = self.loaded.maps.mms.as_fd();
        if slots.is_empty() {
            return bpf::map_delete(mms, &mm.to_ne_bytes());
        }
        let mut words = [0u32; 1 + SLOTS_PER_MM];
        words[0] = slots.len() as u32;
        words[1..=slots.len()].copy_from_slice(slots);
        let value: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        bpf::map_update(mms, &mm.to_ne_bytes(), &value)
    }

    /// Takes the slot out of its address space's list and of all files' lists.
    fn forget(&self, mm: u64, slot: u32) -> io::Result<()> {
        let _mailbox = self.slots();
        let mut left = self.tracked(mm)?;
        if let Some(i) = left.iter().position(|s| *s == slot) {
            left.remove(i);
            self.set_tracked(mm, &left)?; // absent when the address space has ended: then nothing to do
        }
        let mut request = [0u8; 16];
        request[..8].copy_from_slice(&u64::from(slot).to_ne_bytes());
        bpf::map_update(self.loaded.maps.request.as_fd(), &0u32.to_ne_bytes(), &request)?;
        bpf::run_iterator(self.loaded.forget.as_fd(), bpf::pidfd_open(std::process::id())?.as_fd())
    }
}
