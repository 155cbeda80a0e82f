//! [`Device`]: a provider that loom watches.

use std::sync::Mutex;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};

use crate::{Access, DeregisterFailed, Host, Limit, Mapping, PageRange, Provider, ProviderCaps};
use crate::{RegisterError, Reservation};

/// A registration as the device has it: which memory it pinned, and whether it still does.
#[derive(Debug)]
pub(crate) struct Pinned {
    /// The memory's version when it was pinned.
    pub(crate) version: u64,
    /// Read by transfers, written by deregistration: loom reports a race between the two.
    alive: UnsafeCell<bool>,
}

// SAFETY: loom checks the cell's uses.
unsafe impl Sync for Pinned {}
// SAFETY: as above.
unsafe impl Send for Pinned {}

impl Pinned {
    pub(crate) fn new(version: u64) -> &'static Self {
        Box::leak(Box::new(Self { version, alive: UnsafeCell::new(true) }))
    }

    /// What the holder of a registration does.
    pub(crate) fn transfer(&self) {
        // SAFETY: loom checks that nobody writes meanwhile.
        self.alive.with(|alive| assert!(unsafe { *alive }, "used after its deregistration"));
    }

    pub(crate) fn deregister(&self) {
        // SAFETY: loom checks that nobody reads meanwhile.
        self.alive.with_mut(|alive| assert!(std::mem::take(unsafe { &mut *alive }), "deregistered twice"));
    }
}

/// Pins the one memory there is.
#[derive(Debug)]
pub(crate) struct Device {
    /// Moves with each change.
    pub(crate) memory: AtomicU64,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    registered: u64,
    deregistered: u64,
    /// What the next registrations do instead.
    faults: Vec<DeviceFault>,
}

/// How a registration goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceFault {
    Refuse,
    Panic,
}

impl Device {
    pub(crate) fn new(faults: &[DeviceFault]) -> Self {
        let books = Books { faults: faults.to_vec(), ..Books::default() };
        Self { memory: AtomicU64::new(0), books: Mutex::new(books) }
    }

    /// Read-modify-write, since a page table is read as it is now.
    pub(crate) fn version(&self) -> u64 {
        self.memory.fetch_add(0, Ordering::AcqRel)
    }

    pub(crate) fn change(&self) {
        self.memory.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn registered(&self) -> u64 {
        self.books.lock().unwrap().registered
    }

    pub(crate) fn live(&self) -> u64 {
        let books = self.books.lock().unwrap();
        books.registered - books.deregistered
    }
}

/// Shared with the model.
#[derive(Clone, Debug)]
pub(crate) struct DeviceProvider(pub(crate) std::sync::Arc<Device>);

// SAFETY: there is no device.
unsafe impl Provider for DeviceProvider {
    type Mr = &'static Pinned;
    type Key = &'static Pinned;

    fn name(&self) -> &'static str {
        "model"
    }
    fn caps(&self) -> ProviderCaps {
        ProviderCaps::default()
    }
    fn key(&self, mr: &&'static Pinned) -> &'static Pinned {
        mr
    }
    unsafe fn register(&self, range: PageRange, _: Access) -> Result<&'static Pinned, RegisterError> {
        let fault = self.0.books.lock().unwrap().faults.pop();
        match fault {
            Some(DeviceFault::Refuse) => {
                let source = std::io::Error::from_raw_os_error(28);
                let (limit, remedy) = (Limit::RegionBytes, "none");
                return Err(RegisterError::Limit { range, limit, value: None, remedy, source });
            }
            Some(DeviceFault::Panic) => panic!("the device was told to panic"),
            None => {}
        }
        let version = self.0.version();
        // Others run between pinning and return.
        loom::thread::yield_now();
        self.0.books.lock().unwrap().registered += 1;
        Ok(Pinned::new(version))
    }
    fn deregister(&self, mr: &'static Pinned) -> Result<(), DeregisterFailed<&'static Pinned>> {
        mr.deregister();
        self.0.books.lock().unwrap().deregistered += 1;
        Ok(())
    }
}

/// Hazard slots (both halves of the fence are full fences in a model), or counted holds.
#[derive(Debug)]
pub(crate) struct ModelHost {
    pub(crate) slots: bool,
}

impl Host for ModelHost {
    fn reserve(&self, _: usize) -> Option<Reservation> {
        None
    }
    unsafe fn release(&self, _: Reservation) {}
    fn has_asymmetric_fence(&self) -> bool {
        self.slots
    }
    /// The cache's own full fence, which follows, stands for it.
    fn asymmetric_fence(&self) {}
    fn mapping(&self, _: PageRange) -> Option<Mapping> {
        None
    }
    fn now_ns(&self) -> u64 {
        0
    }
}
