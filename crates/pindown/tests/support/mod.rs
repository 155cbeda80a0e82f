//! What the tests against the real kernel share.
#![allow(dead_code)] // each test binary uses a part

pub(crate) mod child;
#[cfg(all(feature = "io-uring", feature = "uffd"))]
pub(crate) mod moving;

use std::io;
use std::process::Command;
use std::ptr;

use pindown::{PAGE_SIZE, PageRange};

/// A mapping of the test's own, unmapped in the end.
#[derive(Debug)]
pub(crate) struct Map {
    addr: usize,
    len: usize,
}

impl Map {
    /// `pages` pages of private anonymous memory, all bytes `fill`.
    pub(crate) fn filled(pages: usize, fill: u8) -> Self {
        let map = Self::new(None, pages, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE, -1).unwrap();
        map.fill(fill);
        map
    }

    /// `mmap` of `pages` pages at `at` (replacing what is there) or anywhere, of file `fd` or anonymous (-1).
    pub(crate) fn new(at: Option<usize>, pages: usize, prot: i32, flags: i32, fd: i32) -> io::Result<Self> {
        let len = pages * PAGE_SIZE;
        let flags = flags
            | if at.is_some() { libc::MAP_FIXED } else { 0 }
            | if fd < 0 { libc::MAP_ANONYMOUS } else { 0 };
        let hint = ptr::without_provenance_mut(at.unwrap_or(0));
        // SAFETY: with `at`, the test gives its own mapping up to be replaced; else the kernel chooses.
        let addr = unsafe { libc::mmap(hint, len, prot, flags, fd, 0) };
        if addr == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self { addr: addr.addr(), len })
        }
    }

    pub(crate) fn range(&self) -> PageRange {
        PageRange::covering(self.addr, self.len).unwrap()
    }

    pub(crate) fn ptr(&self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.addr)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn fill(&self, byte: u8) {
        // SAFETY: the mapping is the test's, and no slice of it is alive.
        unsafe { self.ptr().write_bytes(byte, self.len) }
    }

    /// A copy of what the CPU sees.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        // SAFETY: mapped and readable; the slice is gone when this returns.
        unsafe { std::slice::from_raw_parts(self.ptr(), self.len) }.to_vec()
    }

    /// munmap and mmap at the same address: other pages, zeroed. In a process where no other thread
    /// maps memory meanwhile ([`in_own_process`]).
    pub(crate) fn unmap_and_map_again(&self) {
        // SAFETY: the mapping is the test's; it is mapped again before anyone touches it.
        unsafe { libc::munmap(self.ptr().cast(), self.len) };
        self.map_over(0, self.len / PAGE_SIZE, libc::PROT_READ | libc::PROT_WRITE);
    }

    /// Makes a page inaccessible, while nothing else can be mapped there.
    pub(crate) fn hole(&self, page: usize) {
        self.map_over(page, 1, libc::PROT_NONE);
    }

    fn map_over(&self, page: usize, pages: usize, prot: i32) {
        let at = self.addr + page * PAGE_SIZE;
        std::mem::forget(Self::new(Some(at), pages, prot, libc::MAP_PRIVATE, -1).unwrap());
    }

    pub(crate) fn page(&self, index: usize) -> PageRange {
        PageRange::covering(self.addr + index * PAGE_SIZE, PAGE_SIZE).unwrap()
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the test's own mapping.
        unsafe { libc::munmap(self.ptr().cast(), self.len) };
    }
}

/// Runs `body` in a process of its own: the test `name` of this binary, started again.
pub(crate) fn in_own_process(name: &str, body: impl FnOnce()) {
    const MARK: &str = "PINDOWN_TEST_CHILD";
    if std::env::var_os(MARK).is_some_and(|test| test == name) {
        return body();
    }
    let exe = std::env::current_exe().unwrap();
    let output = Command::new(exe).args(["--exact", name, "--nocapture"]).env(MARK, name).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    print!("{}", String::from_utf8_lossy(&text));
    assert!(output.status.success(), "{name} failed in its own process: {:?}", output.status);
}

/// Makes this process one of an ordinary user whose RLIMIT_MEMLOCK is `bytes`.
pub(crate) fn become_plain_user(memlock_bytes: u64) {
    let limit = libc::rlimit { rlim_cur: memlock_bytes, rlim_max: memlock_bytes };
    // SAFETY: plain system calls on this process; the pointer is to a live rlimit.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit), 0);
        if libc::geteuid() == 0 {
            assert_eq!(libc::setgroups(0, ptr::null()), 0);
            assert_eq!(libc::setresgid(65534, 65534, 65534), 0);
            assert_eq!(libc::setresuid(65534, 65534, 65534), 0);
        }
    }
}

/// Field `name` of /proc/self/status in KiB.
pub(crate) fn status_kib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or_else(|| panic!("no {name}"))
}

/// Whether this process may pin so much.
pub(crate) fn is_memlock_at_least(bytes: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live rlimit, and a plain system call.
    let root = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) != 0 || libc::geteuid() == 0 };
    root || limit.rlim_cur >= bytes
}
