//! A verbs device, if there is one, and memory to change.
#![allow(dead_code)]

use std::sync::Arc;

use pindown::monitor::Manual;
use pindown::provider::verbs::{Options, Verbs, devices};
use pindown::{Builder, Cache, Monitor, MonitorChoice};

/// The device to test with: `PINDOWN_VERBS_DEVICE`, or the first that has an active port.
pub(crate) fn device() -> Option<String> {
    if let Ok(name) = std::env::var("PINDOWN_VERBS_DEVICE") {
        return Some(name);
    }
    match devices() {
        Ok(all) => all.into_iter().find(|d| d.ports.iter().any(|p| p.state == "active")).map(|d| d.name),
        Err(why) => {
            eprintln!("no verbs device: {why}");
            None
        }
    }
}

/// Whether the test device has on-demand paging.
pub(crate) fn has_on_demand(name: &str) -> bool {
    devices().unwrap().iter().any(|d| d.name == name && d.on_demand)
}

/// Ends a test that needs a device where there is none.
#[macro_export]
macro_rules! device_or_skip {
    () => {
        match verbs_common::device() {
            Some(name) => name,
            None => {
                eprintln!("skipped: no verbs device with an active port (try the lab: cargo xtask vm)");
                return;
            }
        }
    };
}

pub(crate) fn cache(device: &str, options: Options) -> Cache<Verbs> {
    cache_with(device, options, Arc::new(Manual::new()))
}

pub(crate) fn cache_with(device: &str, options: Options, monitor: Arc<dyn Monitor>) -> Cache<Verbs> {
    let provider = Verbs::open(device, options).expect("the device opens");
    Builder::new(provider).monitor(MonitorChoice::Custom(monitor)).build().expect("a cache")
}

/// Private anonymous memory at an address of its own.
pub(crate) struct Memory {
    pub(crate) addr: *mut u8,
    pub(crate) len: usize,
}

impl Memory {
    pub(crate) fn new(len: usize) -> Self {
        Self { addr: map(std::ptr::null_mut(), len, 0), len }
    }

    /// munmap, then mmap at the same address: other pages.
    pub(crate) fn remap(&self) {
        self.unmap();
        assert_eq!(map(self.addr, self.len, libc::MAP_FIXED_NOREPLACE), self.addr);
    }

    pub(crate) fn unmap(&self) {
        // SAFETY: ours; nothing refers to its bytes.
        assert_eq!(unsafe { libc::munmap(self.addr.cast(), self.len) }, 0);
    }

    pub(crate) fn fill(&self, byte: u8) {
        for i in 0..self.len {
            let value = byte ^ (i >> 12) as u8 ^ i as u8;
            // SAFETY: ours and mapped.
            unsafe { self.addr.add(i).write_volatile(value) };
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        // SAFETY: ours and mapped.
        (0..self.len).map(|i| unsafe { self.addr.add(i).read_volatile() }).collect()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: ours; nothing refers to its bytes.
        unsafe { libc::munmap(self.addr.cast(), self.len) };
    }
}

fn map(at: *mut u8, len: usize, flags: i32) -> *mut u8 {
    let (rw, flags) = (libc::PROT_READ | libc::PROT_WRITE, flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping; FIXED_NOREPLACE replaces nothing.
    let got = unsafe { libc::mmap(at.cast(), len, rw, flags, -1, 0) };
    assert_ne!(got, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    // Small pages: what the tests change is what was registered.
    // SAFETY: ours.
    unsafe { libc::madvise(got, len, libc::MADV_NOHUGEPAGE) };
    got.cast()
}
