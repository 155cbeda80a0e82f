//! `cargo xtask install`: the C library, its header, pkg-config file and man pages, and the command line tool, under a
//! prefix. What `cargo cinstall` (cargo-c) does for the library, without cargo-c.

use super::crate_dir;
use crate::error::{At, Result};
use crate::{cargo, proc, workspace};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs libpindown, its header, pkg-config file and man pages, and the tool `pindown`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the files will be used, e.g. /usr/local. Must be absolute.
    #[arg(long)]
    prefix: PathBuf,
    /// Put them under this directory instead, for packaging: DESTDIR/PREFIX/...
    #[arg(long)]
    destdir: Option<PathBuf>,
    /// The library without the tool.
    #[arg(long)]
    library_only: bool,
}

pub(crate) fn run(args: Args) -> Result<i32> {
    let place = Place::new(&args.prefix, args.destdir.as_deref());
    library(&place, true)?;
    if !args.library_only {
        tool(&place)?;
    }
    println!("installed under {}", place.root.display());
    Ok(0)
}

/// A prefix, and where it lies now.
pub(crate) struct Place {
    prefix: PathBuf,
    pub(crate) root: PathBuf,
}

impl Place {
    pub(crate) fn new(prefix: &Path, destdir: Option<&Path>) -> Self {
        let inside = prefix.strip_prefix("/").unwrap_or(prefix);
        let root = destdir.map_or_else(|| prefix.to_owned(), |dir| dir.join(inside));
        Self { prefix: prefix.to_owned(), root }
    }

    fn put(&self, content: &[u8], to: &str, mode: u32) -> Result<()> {
        let to = self.root.join(to);
        let dir = to.parent().unwrap_or(&self.root);
        fs::create_dir_all(dir).at("create", dir)?;
        // Anew, so that a running program keeps the file that it has mapped.
        fs::remove_file(&to).ok();
        fs::write(&to, content).at("write", &to)?;
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).at("open up", &to)
    }

    fn copy(&self, from: &Path, to: &str, mode: u32) -> Result<()> {
        self.put(&fs::read(from).at("read", from)?, to, mode)
    }

    fn link(&self, to: &str, name: &str) -> Result<()> {
        let name = self.root.join(name);
        fs::remove_file(&name).ok();
        symlink(to, &name).at("link", &name)
    }
}

/// Header, shared and static library, pkg-config file, man page.
pub(crate) fn library(place: &Place, release: bool) -> Result<()> {
    let profile = if release { "release" } else { "dev" };
    cargo::build(&["-p", "pindown-capi", "--profile", profile])?;
    let built = workspace::target().join(if release { "release" } else { "debug" });
    let version = env!("CARGO_PKG_VERSION");
    let file = format!("libpindown.so.{version}");
    place.copy(&built.join("libpindown.so"), &format!("lib/{file}"), 0o755)?;
    place.link(&file, &format!("lib/{}", soname()))?;
    place.link(&soname(), "lib/libpindown.so")?;
    place.copy(&built.join("libpindown.a"), "lib/libpindown.a", 0o644)?;
    place.copy(&crate_dir().join("pindown.h"), "include/pindown.h", 0o644)?;
    place.copy(&crate_dir().join("man/pindown.3"), "share/man/man3/pindown.3", 0o644)?;
    let template = crate_dir().join("pindown.pc.in");
    let text = fs::read_to_string(&template).at("read", &template)?;
    let text = text.replace("@prefix@", &place.prefix.to_string_lossy()).replace("@version@", version);
    place.put(text.as_bytes(), "lib/pkgconfig/pindown.pc", 0o644)
}

/// As build.rs of the library has it: before 1.0 each minor version is an ABI of its own.
pub(crate) fn soname() -> String {
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    if major == "0" { format!("libpindown.so.0.{minor}") } else { format!("libpindown.so.{major}") }
}

/// `pindown` and its man pages, which it writes itself.
fn tool(place: &Place) -> Result<()> {
    let binary = cargo::build_pindown(true)?;
    place.copy(&binary, "bin/pindown", 0o755)?;
    let pages = place.root.join("share/man/man1");
    fs::create_dir_all(&pages).at("create", &pages)?;
    proc::output(Command::new(binary).arg("__man").arg(pages)).map(drop)
}
