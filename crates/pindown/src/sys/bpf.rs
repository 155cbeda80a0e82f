//! `bpf(2)`, the commands that a loader of programs does not wrap: maps made at run time, links as
//! plain descriptors, and iterators on one process (Linux 6.1).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const MAP_CREATE: i64 = 0;
const MAP_LOOKUP_ELEM: i64 = 1;
const MAP_UPDATE_ELEM: i64 = 2;
const MAP_DELETE_ELEM: i64 = 3;
const RAW_TRACEPOINT_OPEN: i64 = 17;
const MAP_FREEZE: i64 = 22;
const LINK_CREATE: i64 = 28;
const ITER_CREATE: i64 = 33;
const TRACE_ITER: u32 = 28;

/// `BPF_F_MMAPABLE` (Linux 5.5).
pub(crate) const F_MMAPABLE: u32 = 1 << 10;
pub(crate) const MAP_ARRAY: u32 = 2;
pub(crate) const MAP_RINGBUF: u32 = 27;

/// The first 128 bytes of `union bpf_attr`, as 32-bit words.
struct Attr([u32; 32]);

impl Attr {
    fn new(words: &[u32]) -> Self {
        let mut attr = Self([0; 32]);
        attr.0[..words.len()].copy_from_slice(words);
        attr
    }

    fn pointer(mut self, word: usize, address: u64) -> Self {
        self.0[word] = address as u32;
        self.0[word + 1] = (address >> 32) as u32;
        self
    }

    /// Makes the call.
    ///
    /// # Safety
    ///
    /// Each pointer in the attribute points to memory that `command` may read, or write, to the
    /// length that it expects of it.
    unsafe fn call(&self, command: i64) -> io::Result<i32> {
        // SAFETY: the attribute is 128 live bytes, as stated; the rest is the caller's promise.
        let rc = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), size_of_val(&self.0)) };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc as i32) }
    }

    /// Makes a call that has no pointers and returns a new descriptor.
    fn open(&self, command: i64) -> io::Result<OwnedFd> {
        // SAFETY: only used with attributes whose pointers are null or live (see the callers).
        let fd = unsafe { self.call(command)? };
        // SAFETY: the kernel just opened it for us; nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// What `BPF_MAP_CREATE` is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapShape {
    pub(crate) kind: u32,
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) entries: u32,
    pub(crate) flags: u32,
}

/// Creates a map. CAP_BPF.
pub(crate) fn map_create(s: MapShape) -> io::Result<OwnedFd> {
    Attr::new(&[s.kind, s.key_bytes, s.value_bytes, s.entries, s.flags]).open(MAP_CREATE)
}

fn element(map: BorrowedFd<'_>, key: &[u8], value: u64) -> Attr {
    Attr::new(&[map.as_raw_fd() as u32]).pointer(2, key.as_ptr() as u64).pointer(4, value)
}

/// Sets `key` to `value`, whose lengths must be the map's.
pub(crate) fn map_update(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    // SAFETY: key and value are live slices; their lengths are the map's, which the only callers
    // (engine.rs) take from the same layout as the program's map definitions.
    unsafe { element(map, key, value.as_ptr() as u64).call(MAP_UPDATE_ELEM) }.map(drop)
}

/// Reads `key` into `value`, whose lengths must be the map's. `false`: there is none.
pub(crate) fn map_lookup(map: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
    // SAFETY: as for `map_update`; the kernel writes the map's value size, which is `value`'s.
    match unsafe { element(map, key, value.as_mut_ptr() as u64).call(MAP_LOOKUP_ELEM) } {
        Ok(_) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Removes `key`; it may be absent.
pub(crate) fn map_delete(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<()> {
    // SAFETY: as for `map_update`.
    match unsafe { element(map, key, 0).call(MAP_DELETE_ELEM) } {
        Err(e) if e.raw_os_error() != Some(libc::ENOENT) => Err(e),
        _ => Ok(()),
    }
}

/// From now on only programs write the map (Linux 5.2).
pub(crate) fn map_freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no pointers.
    unsafe { Attr::new(&[map.as_raw_fd() as u32]).call(MAP_FREEZE) }.map(drop)
}

/// Attaches a loaded tracing program (tp_btf, fentry, fexit); it stays attached while any copy of
/// the descriptor is open. CAP_PERFMON; EPERM where the kernel's policy refuses.
pub(crate) fn attach_tracing(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Attr::new(&[0, 0, program.as_raw_fd() as u32]).open(RAW_TRACEPOINT_OPEN)
}

/// Runs an `iter/task` program once for each thread of the process behind `pidfd` (Linux 6.1).
pub(crate) fn run_iterator(program: BorrowedFd<'_>, pidfd: BorrowedFd<'_>) -> io::Result<()> {
    let info: [u32; 4] = [0, 0, pidfd.as_raw_fd() as u32, 0]; // bpf_iter_link_info.task: tid, pid, pid_fd
    let mut words = [0u32; 7];
    words[0] = program.as_raw_fd() as u32;
    words[2] = TRACE_ITER;
    words[6] = 12;
    let link = Attr::new(&words).pointer(4, info.as_ptr() as u64).open(LINK_CREATE)?;
    let iterator = Attr::new(&[link.as_raw_fd() as u32]).open(ITER_CREATE)?;
    let mut buffer = [0u8; 64];
    // SAFETY: `buffer` is live and as long as stated.
    let rc = unsafe { libc::read(iterator.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `pidfd_open(2)` (Linux 5.3).
pub(crate) fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just opened it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// An advice that no kernel knows (bpf/syscalls.h).
pub(crate) const ASK: i64 = 0x7069_6e64;

/// Asks the programs about `address`: `madvise(address, slot, ASK, cookie)`, which the kernel
/// refuses (EINVAL, before it looks at the address) and the sys_exit program answers.
pub(crate) fn ask(address: usize, slot: u32, cookie: u64) {
    // SAFETY: the kernel refuses the advice; it touches no memory.
    unsafe { libc::syscall(libc::SYS_madvise, address, slot as usize, ASK, cookie) };
}

/// Tells the programs where the heap ends: `brk(0)`, which changes nothing.
pub(crate) fn show_break() {
    // SAFETY: no pointer; an end of 0 is refused, and the present one is returned.
    unsafe { libc::syscall(libc::SYS_brk, 0) };
}
