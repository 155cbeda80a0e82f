//! [`Change`]: the ways in which memory becomes other memory at the same address.

use std::ffi::c_void;
use std::ptr;

use io_uring::{IoUring, opcode};

use crate::memory::{Backing, Memory, attach, map, segment};

macro_rules! changes {
    ($($change:ident: $name:literal, $backing:ident, $seen:literal, $function:ident;)*) => {
        /// One way.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Change { $($change,)* }

        impl Change {
            pub(crate) const ALL: &[Self] = &[$(Self::$change,)*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$change => $name,)* }
            }
            pub(crate) fn backing(self) -> Backing {
                match self { $(Self::$change => Backing::$backing,)* }
            }
            /// By the engines' own patches of libc.
            pub(crate) fn is_seen_by_hooks(self) -> bool {
                match self { $(Self::$change => $seen,)* }
            }
            pub(crate) fn apply(self, memory: &mut Memory) {
                match self { $(Self::$change => $function(memory),)* }
            }
        }
    };
}

changes! {
    Unmap: "munmap, mmap", Anonymous, true, unmap;
    Discard: "madvise DONTNEED", Anonymous, true, discard;
    MapOver: "mmap FIXED", Anonymous, true, map_over;
    MoveOnto: "mremap onto it", Anonymous, false, move_onto;
    RawUnmap: "raw munmap, mmap", Anonymous, false, raw_unmap;
    RawMapOver: "raw mmap FIXED", Anonymous, false, raw_map_over;
    RawDiscard: "raw madvise DONTNEED", Anonymous, false, raw_discard;
    RawMoveOnto: "raw mremap onto it", Anonymous, false, raw_move_onto;
    ProcessMadvise: "process_madvise DONTNEED", Anonymous, false, process_madvise;
    RingMadvise: "io_uring MADVISE DONTNEED", Anonymous, false, ring_madvise;
    Truncate: "ftruncate of a memfd", File, false, truncate;
    PunchHole: "fallocate PUNCH_HOLE", File, false, punch_hole;
    RawRemove: "raw madvise REMOVE", File, false, raw_remove;
    AttachOver: "raw shmat SHM_REMAP", Segment, false, attach_over;
}

fn at(memory: &Memory) -> *mut c_void {
    memory.addr().cast()
}

fn ok(result: i64) {
    assert!(result >= 0, "{}", std::io::Error::last_os_error());
}

fn unmap(m: &mut Memory) {
    // SAFETY: ours; nothing refers to its bytes. So below.
    ok(unsafe { libc::munmap(at(m), m.len()) }.into());
    assert_eq!(map(m.addr(), m.len(), -1, libc::MAP_FIXED_NOREPLACE), m.addr());
}

fn discard(m: &mut Memory) {
    // SAFETY: as above.
    ok(unsafe { libc::madvise(at(m), m.len(), libc::MADV_DONTNEED) }.into());
}

fn map_over(m: &mut Memory) {
    map(m.addr(), m.len(), -1, libc::MAP_FIXED);
}

fn move_onto(m: &mut Memory) {
    let other = map(ptr::null_mut(), m.len(), -1, 0);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: both ours.
    let moved = unsafe { libc::mremap(other.cast(), m.len(), m.len(), flags, at(m)) };
    assert_eq!(moved, at(m));
}

fn raw_unmap(m: &mut Memory) {
    // SAFETY: as above.
    ok(unsafe { libc::syscall(libc::SYS_munmap, at(m), m.len()) });
    raw_map(m, libc::MAP_FIXED_NOREPLACE);
}

fn raw_map_over(m: &mut Memory) {
    raw_map(m, libc::MAP_FIXED);
}

fn raw_map(m: &Memory, flags: i32) {
    let (rw, flags) = (libc::PROT_READ | libc::PROT_WRITE, flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: over memory of ours, or none.
    let got = unsafe { libc::syscall(libc::SYS_mmap, at(m), m.len(), rw, flags, -1, 0) };
    assert_eq!(got as usize, m.addr().addr());
}

fn raw_discard(m: &mut Memory) {
    raw_madvise(m, libc::MADV_DONTNEED);
}

fn raw_madvise(m: &Memory, advice: i32) {
    // SAFETY: as above.
    ok(unsafe { libc::syscall(libc::SYS_madvise, at(m), m.len(), advice) });
}

fn raw_move_onto(m: &mut Memory) {
    let other = map(ptr::null_mut(), m.len(), -1, 0);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: both ours.
    ok(unsafe { libc::syscall(libc::SYS_mremap, other, m.len(), m.len(), flags, at(m)) });
}

fn process_madvise(m: &mut Memory) {
    let range = libc::iovec { iov_base: at(m), iov_len: m.len() };
    // SAFETY: of this process, over memory of ours.
    let done = unsafe {
        let me = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
        ok(me);
        let done = libc::syscall(libc::SYS_process_madvise, me, &raw const range, 1, libc::MADV_DONTNEED, 0);
        libc::close(me as i32);
        done
    };
    ok(done);
    assert_eq!(done as usize, m.len());
}

fn ring_madvise(m: &mut Memory) {
    let mut ring = IoUring::new(2).expect("an io_uring");
    let entry = opcode::Madvise::new(at(m), m.len() as i64, libc::MADV_DONTNEED).build();
    // SAFETY: the entry names memory of ours, and is waited for.
    unsafe { ring.submission().push(&entry) }.expect("room for one");
    ring.submit_and_wait(1).expect("submits");
    assert_eq!(ring.completion().next().expect("one completion").result(), 0);
}

fn truncate(m: &mut Memory) {
    // SAFETY: a descriptor of ours.
    ok(unsafe { libc::ftruncate(m.fd, 0) }.into());
    // SAFETY: as above.
    ok(unsafe { libc::ftruncate(m.fd, m.len() as i64) }.into());
}

fn punch_hole(m: &mut Memory) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a descriptor of ours.
    ok(unsafe { libc::fallocate(m.fd, mode, 0, m.len() as i64) }.into());
}

fn raw_remove(m: &mut Memory) {
    raw_madvise(m, libc::MADV_REMOVE);
}

fn attach_over(m: &mut Memory) {
    assert_eq!(attach(segment(m.len()), m.addr(), libc::SHM_REMAP), m.addr());
}
