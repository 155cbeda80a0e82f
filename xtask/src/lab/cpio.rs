//! Writes "newc" cpio archives, the format of an initramfs (Documentation/driver-api/early-userspace/buffer-format.rst).

use crate::error::{At, Result};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

/// An archive in the making. Everything in it belongs to root.
pub(crate) struct Cpio {
    out: BufWriter<File>,
    inode: u32,
}

impl Cpio {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).at("create", path)?;
        Ok(Self { out: BufWriter::with_capacity(1 << 20, file), inode: 0 })
    }

    pub(crate) fn directory(&mut self, name: &str) -> Result<()> {
        self.entry(name.as_bytes(), DIRECTORY | 0o755, b"")
    }

    pub(crate) fn file(&mut self, name: &str, mode: u32, data: &[u8]) -> Result<()> {
        self.entry(name.as_bytes(), REGULAR | mode, data)
    }

    /// Adds what lies under `dir` as `prefix/...`; `keep` sees names with their prefix.
    pub(crate) fn tree(&mut self, dir: &Path, prefix: &str, keep: &dyn Fn(&str) -> bool) -> Result<()> {
        let mut entries: Vec<_> = fs::read_dir(dir).and_then(Iterator::collect).at("read", dir)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let file_name = entry.file_name();
            let name = format!("{prefix}{}", file_name.to_string_lossy());
            if keep(&name) {
                self.path(&entry.path(), &name, keep)?;
            }
        }
        Ok(())
    }

    /// Adds one host file, link or directory as `name`.
    pub(crate) fn path(&mut self, path: &Path, name: &str, keep: &dyn Fn(&str) -> bool) -> Result<()> {
        let meta = fs::symlink_metadata(path).at("read", path)?;
        let mode = meta.mode();
        if meta.is_dir() {
            self.entry(name.as_bytes(), mode, b"")?;
            self.tree(path, &format!("{name}/"), keep)
        } else if meta.is_symlink() {
            let to = fs::read_link(path).at("read", path)?;
            self.entry(name.as_bytes(), mode, to.as_os_str().as_bytes())
        } else if meta.is_file() {
            let data = fs::read(path).at("read", path)?;
            self.entry(name.as_bytes(), mode, &data)
        } else {
            Ok(()) // sockets and devices: the guest mounts its own
        }
    }

    fn entry(&mut self, name: &[u8], mode: u32, data: &[u8]) -> Result<()> {
        self.inode += 1;
        self.write(name, mode, data).at("write", Path::new("a cpio archive"))
    }

    fn write(&mut self, name: &[u8], mode: u32, data: &[u8]) -> std::io::Result<()> {
        let size = u32::try_from(data.len())
            .map_err(|_| std::io::Error::other("a file over 4 GiB does not fit into cpio"))?;
        write!(self.out, "070701{:08x}{mode:08x}", self.inode)?;
        // uid, gid, links, time
        write!(self.out, "{:08x}{:08x}{:08x}{:08x}{size:08x}", 0, 0, 1, 0)?;
        // device, rdevice, name with its NUL, no checksum
        write!(self.out, "{:08x}{:08x}{:08x}{:08x}", 0, 0, 0, 0)?;
        write!(self.out, "{:08x}{:08x}", name.len() + 1, 0)?;
        self.out.write_all(name)?;
        self.out.write_all(&[0; 4][..1 + pad(110 + name.len() + 1)])?;
        self.out.write_all(data)?;
        self.out.write_all(&[0; 4][..pad(data.len())])
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        self.inode = 0;
        self.write(b"TRAILER!!!", 0, b"")
            .and_then(|()| self.out.flush())
            .at("write", Path::new("a cpio archive"))
    }
}

/// Bytes to the next multiple of four.
fn pad(bytes: usize) -> usize {
    bytes.wrapping_neg() % 4
}
