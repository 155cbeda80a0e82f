//! [`Memory`]: a buffer that can be changed.

use std::ptr;

/// What the pages belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    Anonymous,
    /// A memfd, mapped shared.
    File,
    /// A System V segment.
    Segment,
}

pub(crate) struct Memory {
    addr: *mut u8,
    len: usize,
    backing: Backing,
    /// Of a file.
    pub(crate) fd: i32,
}

impl Memory {
    pub(crate) fn new(backing: Backing, len: usize) -> Self {
        let mut fd = -1;
        let addr = match backing {
            Backing::Anonymous => map(ptr::null_mut(), len, -1, 0),
            Backing::File => {
                // SAFETY: a terminated name.
                fd = unsafe { libc::memfd_create(c"buffer".as_ptr(), 0) };
                // SAFETY: a descriptor of ours.
                assert_eq!(unsafe { libc::ftruncate(fd, len as i64) }, 0);
                map(ptr::null_mut(), len, fd, 0)
            }
            Backing::Segment => attach(segment(len), ptr::null_mut(), 0),
        };
        Self { addr, len, backing, fd }
    }

    pub(crate) fn addr(&self) -> *mut u8 {
        self.addr
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Different at each place of a page, and in each page.
    fn word(seed: u32, at: usize) -> u32 {
        seed ^ (at as u32).wrapping_mul(0x85EB_CA6B)
    }

    pub(crate) fn fill(&mut self, seed: u32) {
        for at in 0..self.len / 4 {
            // SAFETY: inside the mapped buffer, which is page-aligned.
            unsafe { self.addr.cast::<u32>().add(at).write(Self::word(seed, at)) };
        }
    }

    pub(crate) fn has(&self, seed: u32) -> bool {
        // SAFETY: inside the mapped buffer; volatile, since a device wrote it.
        (0..self.len / 4)
            .all(|at| unsafe { self.addr.cast::<u32>().add(at).read_volatile() } == Self::word(seed, at))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self.backing {
            // SAFETY: attached here.
            Backing::Segment => _ = unsafe { libc::shmdt(self.addr.cast()) },
            // SAFETY: mapped here; nothing refers to it.
            _ => _ = unsafe { libc::munmap(self.addr.cast(), self.len) },
        }
        if self.fd >= 0 {
            // SAFETY: opened here.
            unsafe { libc::close(self.fd) };
        }
    }
}

pub(crate) fn map(at: *mut u8, len: usize, fd: i32, flags: i32) -> *mut u8 {
    let kind = if fd < 0 { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS } else { libc::MAP_SHARED };
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping; FIXED only over memory of ours.
    let got = unsafe { libc::mmap(at.cast(), len, rw, kind | flags, fd, 0) };
    assert_ne!(got, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    got.cast()
}

/// Removed when the last process detaches.
pub(crate) fn segment(len: usize) -> i32 {
    // SAFETY: a new private segment.
    let id = unsafe { libc::shmget(libc::IPC_PRIVATE, len, 0o600) };
    assert!(id >= 0, "{}", std::io::Error::last_os_error());
    id
}

/// Through libc for the first one, by a raw system call over memory that is there.
pub(crate) fn attach(id: i32, at: *mut u8, flags: i32) -> *mut u8 {
    let got: isize = if flags == 0 {
        // SAFETY: a new attachment at an address of the kernel's choice.
        unsafe { libc::shmat(id, at.cast(), 0) }.addr() as isize
    } else {
        // SAFETY: replaces memory of ours.
        unsafe { libc::syscall(libc::SYS_shmat, id, at, flags) as isize }
    };
    assert!(got > 0, "{}", std::io::Error::last_os_error());
    // SAFETY: ours.
    unsafe { libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()) };
    ptr::with_exposed_provenance_mut(got as usize)
}
