//! A kernel of Debian, by suite, with the modules that the lab needs as a cpio.

use super::apt::{self, Apt, Package};
use super::artefact;
use super::cpio::Cpio;
use super::tools::Tools;
use crate::error::{At, Error, Result};
use crate::proc;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `/init` loads or a test may load, in the guest; a kernel without one goes without.
const MODULES: &str = "virtio_pci virtio_console crc32_generic crc32_pclmul rdma_rxe siw ib_uverbs rdma_ucm ib_umad dummy veth virtio_net af_packet \
    9p 9pnet_virtio fuse xfs btrfs ext4 loop dmi_sysfs";

/// Which kernel, by suite: versions move, suites stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kernel {
    /// The newest: rxe with on-demand paging.
    Backports,
    /// Debian 13: rxe without on-demand paging.
    Stable,
    /// Debian 12.
    Oldstable,
}

impl Kernel {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Backports => "backports",
            Self::Stable => "stable",
            Self::Oldstable => "oldstable",
        }
    }

    fn suites(self) -> &'static [&'static str] {
        match self {
            Self::Backports => &["trixie", "trixie-backports"],
            Self::Stable => &["trixie"],
            Self::Oldstable => &["bookworm"],
        }
    }

    fn suite(self) -> &'static str {
        self.suites().last().expect("a kernel has a suite")
    }
}

pub(crate) const VMLINUZ: &str = "vmlinuz";
pub(crate) const MODULES_CPIO: &str = "modules.cpio";

pub(crate) fn prepare(kernel: Kernel, tools: &Tools, refresh: bool) -> Result<PathBuf> {
    let name = format!("kernel-{}", kernel.name());
    let recipe = format!("1 {} {MODULES}", kernel.suite());
    artefact::get(&name, &recipe, refresh, |dir| build(kernel, tools, dir))
}

fn build(kernel: Kernel, tools: &Tools, dir: &Path) -> Result<String> {
    let apt = Apt::empty(&format!("kernel-{}", kernel.name()), kernel.suites())?;
    let image = image_packages(&apt, kernel)?;
    apt.download_only(&image)?;
    let tree = dir.join("tree");
    apt::unpack(&image, &tree)?;
    let modules = modules_dir(&tree)?;
    let version = file_name(&modules);
    let vmlinuz = [modules.join("vmlinuz"), tree.join(format!("boot/vmlinuz-{version}"))];
    let vmlinuz = vmlinuz.iter().find(|p| p.exists());
    let vmlinuz = vmlinuz.ok_or_else(|| Error::Other(format!("no vmlinuz in {version}")))?;
    fs::copy(vmlinuz, dir.join(VMLINUZ)).at("copy", vmlinuz)?;
    select_modules(&modules, &dir.join("initrd"), &version, tools)?;
    let mut cpio = Cpio::create(&dir.join(MODULES_CPIO))?;
    cpio.tree(&dir.join("initrd"), "", &|_| true)?;
    cpio.finish()?;
    artefact::remove(&tree)?;
    Ok(format!("{version} ({})", kernel.suite()))
}

/// The packages behind the metapackages: `linux-image-6.12...`, and what newer suites split off it.
fn image_packages(apt: &Apt, kernel: Kernel) -> Result<Vec<Package>> {
    let plan = apt.plan(&format!("linux-image-amd64/{}", kernel.suite()))?;
    let of_version = |p: &Package| {
        let rest = p.name.strip_prefix("linux-").and_then(|n| n.split_once('-'));
        rest.is_some_and(|(_, version)| version.starts_with(|c: char| c.is_ascii_digit()))
    };
    Ok(plan.into_iter().filter(of_version).collect())
}

fn modules_dir(tree: &Path) -> Result<PathBuf> {
    let parents = ["usr/lib/modules", "lib/modules"].map(|d| tree.join(d));
    let parent = parents.iter().find(|p| p.is_dir());
    let entry = parent.and_then(|p| fs::read_dir(p).ok()?.next()?.ok());
    entry.map(|e| e.path()).ok_or_else(|| Error::Other("the kernel package brought no modules".into()))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Copies the modules of the list, uncompressed, with what they depend on, and indexes them.
fn select_modules(from: &Path, root: &Path, version: &str, tools: &Tools) -> Result<()> {
    let to = root.join("usr/lib/modules").join(version);
    fs::create_dir_all(&to).at("create", &to)?;
    for index in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
        let path = from.join(index);
        fs::copy(&path, to.join(index)).at("copy", &path)?;
    }
    let mut all = BTreeMap::new();
    find_modules(&from.join("kernel"), &mut all)?;
    let mut todo: Vec<String> = MODULES.split_whitespace().map(Into::into).collect();
    while let Some(name) = todo.pop() {
        if let Some(path) = all.remove(&name) {
            let data = module_data(&path)?;
            todo.extend(dependencies(&data));
            let copy = to.join(format!("{name}.ko"));
            fs::write(&copy, data).at("write", &copy)?;
        }
    }
    // depmod of bookworm knows /lib alone.
    let link = root.join("lib");
    std::os::unix::fs::symlink("usr/lib", &link).at("link", &link)?;
    proc::output(tools.depmod().arg("-b").arg(root).arg(version))?;
    fs::remove_file(&link).at("remove", &link)
}

/// Maps module names, with underscores, to files.
fn find_modules(dir: &Path, found: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).at("read", dir)? {
        let path = entry.at("read", dir)?.path();
        if path.is_dir() {
            find_modules(&path, found)?;
        } else if let Some((name, _)) = file_name(&path).split_once(".ko") {
            found.insert(name.replace('-', "_"), path);
        }
    }
    Ok(())
}

/// The module, decompressed: the host does it faster than the emulated guest.
fn module_data(path: &Path) -> Result<Vec<u8>> {
    let program = match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return fs::read(path).at("read", path),
    };
    let out = Command::new(program).arg("-dc").arg(path).output();
    match out {
        Ok(out) if out.status.success() => Ok(out.stdout),
        _ => Err(Error::Missing {
            what: format!("`{program}`, to decompress {}", path.display()),
            remedy: format!("install the package {program}-utils or {program}"),
        }),
    }
}

/// The names in the module's `depends=` string.
fn dependencies(module: &[u8]) -> Vec<String> {
    let mut strings = module.split(|b| *b == 0);
    let depends = strings.find_map(|s| s.strip_prefix(b"depends="));
    let text = String::from_utf8_lossy(depends.unwrap_or_default()).into_owned();
    let names = text.split(',').filter(|n| !n.is_empty());
    names.map(|n| n.replace('-', "_")).collect()
}
