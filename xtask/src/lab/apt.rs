//! Debian packages by suite, through a private apt state: nothing on the host changes, no root.

use super::artefact::write;
use crate::error::{At, Error, Result};
use crate::{proc, workspace};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A set of suites with package lists of its own.
pub(crate) struct Apt {
    dir: PathBuf,
}

/// One package that apt chose.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The file in apt's archive directory.
    pub(crate) deb: PathBuf,
}

impl Apt {
    /// Fetches the package lists of `suites`. The first suite rules; packages of the others come
    /// only when asked for as `name/suite`. `status` is what counts as installed.
    pub(crate) fn new(name: &str, suites: &[&str], status: &Path) -> Result<Self> {
        let dir = workspace::lab().join("apt").join(name);
        for sub in ["lists/partial", "archives/partial"] {
            let sub = dir.join(sub);
            fs::create_dir_all(&sub).at("create", &sub)?;
        }
        let mirror = mirror()?;
        let signed = Path::new(KEYRING).exists();
        let option = if signed { format!(" signed-by={KEYRING}") } else { String::new() };
        let sources: String =
            suites.iter().map(|s| format!("deb [target=Packages{option}] {mirror} {s} main\n")).collect();
        write(&dir.join("sources.list"), &sources)?;
        write(&dir.join("preferences"), &pins(&suites[1..]))?;
        write(&dir.join("empty"), "")?;
        write(&dir.join("apt.conf"), &config(&dir, status))?;
        let apt = Self { dir };
        apt.update(&mirror)?;
        Ok(apt)
    }

    fn update(&self, mirror: &str) -> Result<()> {
        let said = |e: Error| {
            let text = e.to_string();
            let line = text.lines().find(|l| l.trim_start().starts_with("E:"));
            line.unwrap_or(&text).trim().to_owned()
        };
        let updated = proc::output(self.command("apt-get").args(["-q", "update"]));
        updated.map(drop).map_err(|e| Error::Missing {
            what: format!("package lists from {mirror} ({})", said(e)),
            remedy: "check this machine's network and apt sources, or set PINDOWN_LAB_MIRROR".into(),
        })
    }

    /// With nothing counted as installed: for trees that must be whole.
    pub(crate) fn empty(name: &str, suites: &[&str]) -> Result<Self> {
        let status = workspace::lab().join("apt").join(name).join("empty");
        Self::new(name, suites, &status)
    }

    /// Takes `packages` (names or globs) from `suite` from now on, where it has them.
    pub(crate) fn prefer(&self, packages: &str, suite: &str) -> Result<()> {
        let path = self.dir.join("preferences");
        let pins = fs::read_to_string(&path).at("read", &path)?;
        let pin = format!("Package: {packages}\nPin: release n={suite}\nPin-Priority: 900\n\n");
        write(&path, &(pin + &pins))
    }

    fn command(&self, program: &str) -> Command {
        let mut c = Command::new(program);
        c.env("APT_CONFIG", self.dir.join("apt.conf"))
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive");
        c
    }

    /// The versions of a package on offer, newest first, each with its suite.
    pub(crate) fn offers(&self, package: &str) -> Result<Vec<(String, String)>> {
        let text = proc::output(self.command("apt-cache").args(["madison", package]))?;
        let offer = |line: &str| {
            let mut columns = line.split('|').map(str::trim).skip(1);
            let version = columns.next()?.to_owned();
            let suite = columns.next()?.split_whitespace().nth(1)?;
            Some((version, suite.split('/').next()?.to_owned()))
        };
        Ok(text.lines().filter_map(offer).collect())
    }

    /// Resolves and downloads packages with what they depend on.
    pub(crate) fn download(&self, packages: &[&str]) -> Result<Vec<Package>> {
        let plan = proc::output(self.command("apt-get").args(["-s", "install"]).args(packages))?;
        let chosen = plan.lines().filter_map(|l| self.planned(l)).collect();
        proc::output(
            self.command("apt-get").args(["-q", "-y", "--download-only", "install"]).args(packages),
        )?;
        Ok(chosen)
    }

    /// The plan for `package`, without a download.
    pub(crate) fn plan(&self, package: &str) -> Result<Vec<Package>> {
        let plan = proc::output(self.command("apt-get").args(["-s", "install", package]))?;
        Ok(plan.lines().filter_map(|l| self.planned(l)).collect())
    }

    /// Downloads packages of a plan, without what they depend on.
    pub(crate) fn download_only(&self, packages: &[Package]) -> Result<()> {
        let wanted = packages.iter().filter(|p| !p.deb.exists());
        let names: Vec<_> = wanted.map(|p| format!("{}={}", p.name, p.version)).collect();
        let mut c = self.command("apt-get");
        c.args(["-q", "download"]).args(&names);
        if !names.is_empty() {
            proc::output(c.current_dir(self.dir.join("archives")))?;
        }
        Ok(())
    }

    /// Reads `Inst NAME [OLD] (VERSION ORIGIN [ARCH])`.
    fn planned(&self, line: &str) -> Option<Package> {
        let name = line.strip_prefix("Inst ")?.split_whitespace().next()?;
        let inner = &line[line.find('(')? + 1..];
        let version = inner.split_whitespace().next()?;
        let arch = &inner[inner.find('[')? + 1..inner.find(']')?];
        let file = format!("{name}_{}_{arch}.deb", version.replace(':', "%3a"));
        Some(Package {
            name: name.to_owned(),
            version: version.to_owned(),
            deb: self.dir.join("archives").join(file),
        })
    }
}

/// Unpacks packages into a tree, without their maintainer scripts.
pub(crate) fn unpack(packages: &[Package], tree: &Path) -> Result<()> {
    // base-files first: it brings the links /bin, /lib and /sbin that others unpack through.
    let (base, others): (Vec<_>, Vec<_>) = packages.iter().partition(|p| p.name == "base-files");
    for package in base.into_iter().chain(others) {
        proc::output(Command::new("dpkg-deb").arg("-x").args([&package.deb, tree]))?;
    }
    Ok(())
}

/// The suite of the host itself.
pub(crate) fn host_suite() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VERSION_CODENAME="));
    line.unwrap_or("stable").trim_matches('"').to_owned()
}

/// The Debian mirror of this machine's own apt configuration.
fn mirror() -> Result<String> {
    if let Ok(mirror) = std::env::var("PINDOWN_LAB_MIRROR") {
        return Ok(mirror);
    }
    let missing = |_| Error::Missing {
        what: "apt".into(),
        remedy: "the lab takes its kernels from Debian packages: run it on Debian or in a Debian container"
            .into(),
    };
    let uris = proc::output(Command::new("apt-get").args(["update", "--print-uris"])).map_err(missing)?;
    let archives = uris.lines().filter_map(|l| l.trim_start_matches('\'').split_once("/dists/"));
    let suite = format!("{}/", host_suite());
    let debian = archives
        .filter(|(_, rest)| rest.starts_with(&suite))
        .find(|(uri, _)| uri.ends_with("/debian") || uri.contains("debian/"));
    debian.map(|(uri, _)| uri.to_owned()).ok_or_else(|| Error::Missing {
        what: "a Debian mirror in this machine's apt sources".into(),
        remedy: "set PINDOWN_LAB_MIRROR to one".into(),
    })
}

/// Keeps the other suites to what is asked of them by name.
fn pins(suites: &[&str]) -> String {
    let pin = |s: &&str| format!("Package: *\nPin: release n={s}\nPin-Priority: 50\n\n");
    suites.iter().map(pin).collect()
}

/// An apt configuration that reads the machine's own first (a proxy, say) and writes only under `dir`.
fn config(dir: &Path, status: &Path) -> String {
    let (d, status) = (dir.display(), status.display());
    format!(
        r#"Dir::State "{d}"; Dir::State::lists "{d}/lists"; Dir::State::status "{status}";
Dir::Cache "{d}"; Dir::Cache::archives "{d}/archives";
Dir::Etc::sourcelist "{d}/sources.list"; Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "{d}/preferences"; Dir::Etc::preferencesparts "/dev/null";
Dir::Log "{d}/log"; Acquire::Languages "none"; Acquire::Retries "3"; APT::Update::Error-Mode "any"; APT::Sandbox::User "root";
APT::Architecture "amd64"; APT::Architectures {{ "amd64"; }}; APT::Install-Recommends "false";
APT::Keep-Downloaded-Packages "true"; Debug::NoLocking "true";
"#
    )
}
