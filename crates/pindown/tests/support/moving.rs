//! A cache over a ring that moves bytes, and what a test compares them with.

use std::io;
use std::time::Duration;

use pindown::provider::io_uring::{Mover, UringProvider};
use pindown::{Access, AcquireError, Builder, Cache, MonitorChoice, PAGE_SIZE, Registration};

/// A ring with a cache on it.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) cache: Cache<UringProvider>,
    pub(crate) mover: Mover,
}

/// Longest transfer of a [`Moving`].
pub(crate) const MOST_BYTES: usize = 16 * PAGE_SIZE;

impl Moving {
    /// `None`, and why on standard output, where io_uring or userfaultfd is not to be had.
    pub(crate) fn new() -> Option<Self> {
        match Self::with(MonitorChoice::Uffd) {
            Ok(moving) => Some(moving),
            Err(why) => {
                println!("skipped: {why}");
                None
            }
        }
    }

    pub(crate) fn with(monitor: MonitorChoice) -> Result<Self, String> {
        let mover = Mover::new(1, MOST_BYTES).map_err(|e| format!("no io_uring here: {e}"))?;
        let provider = UringProvider::new(mover.ring()).map_err(|e| e.to_string())?;
        let cache = Builder::new(provider).monitor(monitor).build();
        Ok(Self { cache: cache.map_err(|e| format!("no such monitor here: {e}"))?, mover })
    }

    /// A registration of `len` bytes at `addr`, of which nothing is received.
    pub(crate) fn hold(
        &self,
        addr: *const u8,
        len: usize,
    ) -> Result<Registration<UringProvider>, AcquireError> {
        // SAFETY: the tests send from it, or receive into memory that nothing refers to.
        unsafe { self.cache.acquire(addr, len, Access::READ_WRITE) }
    }

    /// What the device sends from `len` bytes at `addr`, through the cache.
    pub(crate) fn send(&mut self, addr: *const u8, len: usize) -> Vec<u8> {
        let registration = self.hold(addr, len).unwrap_or_else(|e| panic!("{len} bytes at {addr:p}: {e}"));
        self.send_by(&registration, addr, len).expect("it is registered")
    }

    /// What the device sends by a registration that is held.
    pub(crate) fn send_by(
        &mut self,
        registration: &Registration<UringProvider>,
        addr: *const u8,
        len: usize,
    ) -> io::Result<Vec<u8>> {
        self.mover.write_fixed(registration.key(), addr, len).map(<[u8]>::to_vec)
    }

    /// Has the device receive `data` at `addr`, to which nothing refers.
    pub(crate) fn receive(&mut self, addr: *mut u8, data: &[u8]) {
        let registration = self.hold(addr, data.len()).expect("it registers");
        // SAFETY: the tests' own memory, which nothing refers to.
        unsafe { self.mover.read_fixed(registration.key(), addr, data) }.expect("it is registered");
    }

    /// Whether nothing is held or registered any more: nothing leaked.
    pub(crate) fn close(self) {
        let provider_count = self.cache.clone();
        self.cache.close(Duration::from_secs(10)).expect("nothing is held");
        assert_eq!(provider_count.provider().registered(), 0);
    }
}
