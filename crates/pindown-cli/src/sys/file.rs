//! Files that memory is mapped from, and what can happen to them.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{Span, check};

const TMPFS_MAGIC: i64 = 0x0102_1994;
/// `FICLONE` of linux/fs.h.
const FICLONE: libc::c_ulong = 0x4004_9409;

/// A memfd of `len` bytes.
pub(crate) fn memfd(name: &CStr, flags: u32, len: usize) -> io::Result<File> {
    // SAFETY: a valid C string; the descriptor returned is new and owned by the File alone.
    let file = unsafe {
        let fd = check(libc::memfd_create(name.as_ptr(), flags | libc::MFD_CLOEXEC))?;
        File::from_raw_fd(fd as i32)
    };
    file.set_len(len as u64)?;
    Ok(file)
}

/// Adds seals to a memfd.
pub(crate) fn seal(file: &File, seals: i32) -> io::Result<()> {
    // SAFETY: an open descriptor and an integer.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }).map(drop)
}

/// An unnamed file of `len` bytes in `dir`.
pub(crate) fn unnamed_file(dir: &Path, len: usize) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(libc::O_TMPFILE).open(dir)?;
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![0x5A; len], 0)?;
    Ok(file)
}

/// Whether `dir` is on tmpfs.
pub(crate) fn is_tmpfs(dir: &Path) -> io::Result<bool> {
    let path = std::ffi::CString::new(dir.as_os_str().as_encoded_bytes())?;
    let mut stat = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: a valid path; the kernel fills the structure when it returns 0.
    let kind = unsafe {
        check(libc::statfs(path.as_ptr(), stat.as_mut_ptr()))?;
        stat.assume_init().f_type
    };
    Ok(kind as i64 == TMPFS_MAGIC)
}

/// The path under which this process (or another of the same user) reaches an open file again.
pub(crate) fn reopen_path(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

/// Opens the same file again with `flags` besides O_RDWR.
pub(crate) fn reopen(file: &File, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(reopen_path(file))
}

/// `fallocate(2)`; offset and length in bytes.
pub(crate) fn fallocate(file: &File, mode: i32, offset: usize, len: usize) -> io::Result<()> {
    // SAFETY: an open descriptor and integers.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, len as i64) }).map(drop)
}

/// Makes `to` share all extents of `from`.
pub(crate) fn clone_file(from: &File, to: &File) -> io::Result<()> {
    // SAFETY: FICLONE takes a descriptor by value.
    check(unsafe { libc::ioctl(to.as_raw_fd(), FICLONE, from.as_raw_fd()) }).map(drop)
}

/// `posix_fadvise(2)` POSIX_FADV_DONTNEED on the whole file.
pub(crate) fn drop_page_cache(file: &File) -> io::Result<()> {
    // SAFETY: an open descriptor and integers.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Writes the bytes of `from` to the file at `offset`, straight from the span (O_DIRECT wants it aligned).
pub(crate) fn write_from_span(file: &File, from: Span, offset: usize) -> io::Result<()> {
    // SAFETY: the span is mapped readable for the whole call.
    let ret = unsafe { libc::pwrite(file.as_raw_fd(), from.ptr().cast(), from.len_bytes(), offset as i64) };
    match check(ret as i64)? as usize == from.len_bytes() {
        true => Ok(()),
        false => Err(io::Error::other("short write")),
    }
}

/// Gives a pipe room for `len` bytes, or the most that an unprivileged user gets; returns its room in bytes.
pub(crate) fn set_pipe_size(pipe: &impl AsRawFd, len: usize) -> io::Result<usize> {
    let wanted = len.clamp(super::PAGE_BYTES, 1 << 20) as i32;
    // SAFETY: an open descriptor and integers.
    unsafe {
        let _ = libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, wanted);
        check(libc::fcntl(pipe.as_raw_fd(), libc::F_GETPIPE_SZ)).map(|room| room as usize)
    }
}
