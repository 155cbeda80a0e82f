//! The guest's userland: Debian stable, with rdma-core of a newer suite where stable's is too old.

use super::apt::{self, Apt, Package};
use super::artefact;
use super::cpio::Cpio;
use crate::error::{Error, Result};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const SUITE: &str = "trixie";

/// Where rdma-core may come from, the nearest first.
const NEWER_SUITES: [&str; 2] = ["trixie-backports", "forky"];

/// `ibv_advise_mr` answers EOPNOTSUPP on soft-RoCE before this release of rdma-core.
const RDMA_CORE: u32 = 65;

const RDMA: &str = "libibverbs1 ibverbs-providers ibverbs-utils librdmacm1t64 libibumad3 rdmacm-utils";

/// Taken from the suite of rdma-core too, if that has them.
const RDMA_NEEDS: &str = "libnl-*";

const BASE: &str = "base-files libc-bin dash bash coreutils util-linux mount hostname grep sed gawk findutils procps \
    iproute2 kmod strace busybox-static perftest libgcc-s1 systemd-standalone-sysusers";

const ENGINES: &str = "python3 libucx0 ucx-utils libfabric1 libfabric-bin openmpi-bin mpich \
    python3-pyverbs libjemalloc2 gdb";

/// Trees that nothing in the guest reads.
const PRUNED: [&str; 16] = [
    "boot",
    "var",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "usr/share/zoneinfo",
    "usr/share/bash-completion",
    "usr/share/lintian",
    "usr/share/icons",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/systemd",
    "usr/lib/udev",
    "usr/include",
    "usr/lib/modules",
    "usr/share/perl",
];

/// What the guest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Guest {
    /// One soft-RoCE device and rdma-core.
    Base,
    /// With UCX, libfabric, Open MPI, MPICH, perftest and python3.
    Engines,
    /// Two network namespaces, host0 and host1, with a device each.
    TwoHosts,
}

/// What is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Userland {
    Base,
    Engines,
}

impl Guest {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Engines => "engines",
            Self::TwoHosts => "two-hosts",
        }
    }

    pub(crate) fn userland(self) -> Userland {
        match self {
            Self::Engines => Userland::Engines,
            Self::Base | Self::TwoHosts => Userland::Base,
        }
    }

    /// Enough for the unpacked userland and some tests, in MiB.
    pub(crate) fn memory_mib(self) -> u32 {
        match self.userland() {
            Userland::Base => 1536,
            Userland::Engines => 3072,
        }
    }
}

impl Userland {
    fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Engines => "engines",
        }
    }

    fn packages(self) -> String {
        match self {
            Self::Base => BASE.into(),
            Self::Engines => format!("{BASE} {ENGINES}"),
        }
    }
}

pub(crate) const USERLAND_CPIO: &str = "userland.cpio";

pub(crate) fn prepare(userland: Userland, refresh: bool) -> Result<PathBuf> {
    let name = format!("userland-{}", userland.name());
    let recipe = format!("1 {SUITE} {RDMA_CORE} {RDMA} {} {PRUNED:?}", userland.packages());
    artefact::get(&name, &recipe, refresh, |dir| build(userland, dir))
}

fn build(userland: Userland, dir: &Path) -> Result<String> {
    let mut suites = vec![SUITE];
    suites.extend(NEWER_SUITES);
    // One state for all userlands, under a lock of its own: their lists are the same.
    let _lock = artefact::lock("userland-apt")?;
    let apt = Apt::empty("userland", &suites)?;
    let suite = rdma_suite(&apt)?;
    apt.prefer(&format!("{RDMA} {RDMA_NEEDS}"), suite)?;
    let names = format!("{RDMA} {}", userland.packages());
    let packages = apt.download(&names.split_whitespace().collect::<Vec<_>>())?;
    let tree = dir.join("tree");
    apt::unpack(&packages, &tree)?;
    finish_tree(&tree)?;
    pack(&tree, &dir.join(USERLAND_CPIO))?;
    artefact::remove(&tree)?;
    write_versions(&packages, dir)?;
    Ok(note(userland, &packages, suite))
}

/// The first suite whose rdma-core is new enough.
fn rdma_suite(apt: &Apt) -> Result<&'static str> {
    let offers = apt.offers("libibverbs1")?;
    let good = |suite: &&'static str| {
        let mut of_suite = offers.iter().filter(|(_, s)| s == suite);
        of_suite.any(|(version, _)| major(version) >= RDMA_CORE)
    };
    let mut suites = std::iter::once(SUITE).chain(NEWER_SUITES);
    suites.find(good).ok_or_else(|| Error::Missing {
        what: format!("rdma-core {RDMA_CORE} or newer on this machine's mirror ({offers:?})"),
        remedy: "set PINDOWN_LAB_MIRROR to a mirror that carries Debian testing".into(),
    })
}

fn major(version: &str) -> u32 {
    let digits = version.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|d| d.parse().ok()).unwrap_or(0)
}

/// What maintainer scripts would have made.
fn finish_tree(tree: &Path) -> Result<()> {
    for (link, to) in [("usr/bin/sh", "dash"), ("usr/bin/awk", "gawk")] {
        let link = tree.join(link);
        if link.symlink_metadata().is_err() {
            symlink(to, &link).map_err(|e| Error::Other(format!("{}: {e}", link.display())))?;
        }
    }
    let files = [
        ("etc/passwd", "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/sh\n"),
        ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
        ("etc/hosts", "127.0.0.1 localhost lab\n10.9.0.1 host0\n10.9.0.2 host1\n"),
        ("etc/hostname", "lab\n"),
        ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
    ];
    for (name, text) in files {
        artefact::write(&tree.join(name), text)?;
    }
    Ok(())
}

fn pack(tree: &Path, archive: &Path) -> Result<()> {
    let mut cpio = Cpio::create(archive)?;
    cpio.tree(tree, "", &|name| !PRUNED.contains(&name))?;
    cpio.finish()
}

/// The whole list, for a report or a comparison.
fn write_versions(packages: &[Package], dir: &Path) -> Result<()> {
    let lines = packages.iter().map(|p| format!("{} {}\n", p.name, p.version));
    artefact::write(&dir.join("versions"), &lines.collect::<String>())
}

fn note(userland: Userland, packages: &[Package], rdma_suite: &str) -> String {
    let version = |name: &str| {
        let package = packages.iter().find(|p| p.name == name);
        package.map_or("?", |p| &p.version)
    };
    let mut note = format!("rdma-core {} ({rdma_suite})", version("libibverbs1"));
    if userland == Userland::Engines {
        let engines = [
            ("UCX", "libucx0"),
            ("libfabric", "libfabric1"),
            ("Open MPI", "openmpi-bin"),
            ("MPICH", "mpich"),
        ];
        for (engine, package) in engines {
            note += &format!(", {engine} {}", version(package));
        }
    }
    note
}
