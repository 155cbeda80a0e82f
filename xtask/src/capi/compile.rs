//! Compiling C against an installed library.

use super::install::{self, Place};
use super::{crate_dir, work_dir};
use crate::error::{At, Error, Result};
use crate::proc;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Warnings are errors, in every language.
const WARNINGS: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    C11,
    Cxx17,
}

/// How a program is linked and instrumented.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    Plain,
    AddressSanitizer,
    /// With `libpindown.a`.
    Static,
}

/// An installed library and the tools to compile against it.
pub(crate) struct Compiler {
    pub(crate) prefix: PathBuf,
}

fn tool(name: &str, package: &str) -> Result<PathBuf> {
    proc::find_program(name).ok_or_else(|| Error::Missing {
        what: name.into(),
        remedy: format!("install {package}, to test the C library"),
    })
}

impl Compiler {
    /// The library, built without optimisation and installed for tests.
    pub(crate) fn prepare() -> Result<Self> {
        tool("cc", "gcc")?;
        tool("pkg-config", "pkg-config")?;
        let prefix = work_dir().join("prefix");
        install::library(&Place::new(&prefix, None), false)?;
        Ok(Self { prefix })
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.prefix.join("lib").join(install::soname())
    }

    /// What `pkg-config ARGS pindown` says, nothing else in its path.
    pub(crate) fn pkg_config(&self, args: &[&str]) -> Result<Vec<String>> {
        let mut c = Command::new("pkg-config");
        c.env("PKG_CONFIG_PATH", self.prefix.join("lib/pkgconfig")).args(args).arg("pindown");
        Ok(proc::output(&mut c)?.split_whitespace().map(Into::into).collect())
    }

    fn command(&self, language: Language) -> Result<Command> {
        let mut c = match language {
            Language::C11 => Command::new(tool("cc", "gcc")?),
            Language::Cxx17 => Command::new(tool("c++", "g++")?),
        };
        c.args(match language {
            Language::C11 => ["-xc", "-std=c11"],
            Language::Cxx17 => ["-xc++", "-std=c++17"],
        });
        c.args(WARNINGS).args(["-g", "-D_GNU_SOURCE"]);
        Ok(c)
    }

    /// Compiles the header alone, as strictly as the language can.
    pub(crate) fn header(&self, language: Language) -> Result<()> {
        let mut c = self.command(language)?;
        c.args(["-pedantic", "-Wconversion", "-fsyntax-only"]).args(self.pkg_config(&["--cflags"])?);
        proc::output(c.arg(self.prefix.join("include/pindown.h"))).map(drop)
    }

    /// Compiles `source`, a file of the crate, into the program `name`.
    pub(crate) fn program(
        &self,
        source: &Path,
        name: &str,
        (language, build): (Language, Build),
        libraries: &[&str],
    ) -> Result<PathBuf> {
        let out = work_dir().join("bin").join(name);
        let dir = out.parent().unwrap_or(&out);
        fs::create_dir_all(dir).at("create", dir)?;
        let mut c = self.command(language)?;
        c.arg(source).args(["-xnone", "-pthread", "-o"]).arg(&out);
        c.args(self.pkg_config(&["--cflags"])?);
        match build {
            Build::Static => c.arg("-s").args(self.static_flags()?),
            Build::Plain => c.args(self.pkg_config(&["--libs"])?),
            Build::AddressSanitizer => {
                c.args(["-fsanitize=address", "-fno-omit-frame-pointer"]).args(self.pkg_config(&["--libs"])?)
            }
        };
        proc::output(c.args(libraries))?;
        Ok(out)
    }

    /// `pkg-config --static`, with the archive in the place of the shared library.
    fn static_flags(&self) -> Result<Vec<String>> {
        let flags = self.pkg_config(&["--static", "--libs"])?;
        let archive = self.prefix.join("lib/libpindown.a").to_string_lossy().into_owned();
        Ok(flags.into_iter().map(|f| if f == "-lpindown" { archive.clone() } else { f }).collect())
    }
}

/// The example `name` as one file to carry into a guest, `c_NAME`. `None`, with a word on stderr, where it cannot be
/// compiled.
pub(crate) fn guest_program(name: &str) -> Option<PathBuf> {
    let libraries: &[&str] = if name.starts_with("verbs") { &["-libverbs"] } else { &[] };
    if !libraries.is_empty() && !Path::new("/usr/include/infiniband/verbs.h").exists() {
        eprintln!("not compiled: examples/{name}.c: install libibverbs-dev");
        return None;
    }
    let (source, out) = (crate_dir().join(format!("examples/{name}.c")), format!("c_{name}"));
    let how = (Language::C11, Build::Static);
    let built = Compiler::prepare().and_then(|c| c.program(&source, &out, how, libraries));
    built.inspect_err(|e| eprintln!("not compiled: {}: {e}", source.display())).ok()
}
