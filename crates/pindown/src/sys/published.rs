//! [`Published`]: a text that other processes can read, and that is gone with this one.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// Name of the memory files, for who looks for them.
pub(crate) const NAME: &str = "pindown-stats";

/// A memory file (memfd_create(2), Linux 3.17) that others reach as `/proc/PID/fd/N` with the rights that
/// proc(5) asks for: this user's processes and root's. Nothing bears its name outside the process, so a
/// killed one leaves nothing.
#[derive(Debug)]
pub(crate) struct Published {
    file: File,
    inode: u64,
}

impl Published {
    /// A file with `text` in it.
    pub(crate) fn new(text: &str) -> io::Result<Self> {
        let name = std::ffi::CString::new(NAME)?;
        // SAFETY: memfd_create reads the name and makes a new descriptor.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else's.
        let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.write_all(text.as_bytes())?;
        let inode = file.metadata()?.ino();
        Ok(Self { file, inode })
    }

    /// Other readers find either the old text or the new one, whole: the descriptor is exchanged.
    pub(crate) fn replace(&mut self, text: &str) -> io::Result<()> {
        let new = Self::new(text)?;
        if !self.is_ours() {
            // The program closed all descriptors, and may have given the number to a file of its own.
            let lost = std::mem::replace(self, new);
            let _ = lost.file.into_raw_fd();
            return Ok(());
        }
        // SAFETY: both are descriptors of ours; the old file's number now names the new file.
        let rc = unsafe { libc::dup3(new.file.as_raw_fd(), self.file.as_raw_fd(), libc::O_CLOEXEC) };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        self.inode = new.inode;
        Ok(())
    }

    fn is_ours(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.ino() == self.inode)
    }
}
