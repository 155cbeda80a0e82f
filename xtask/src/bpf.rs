//! `cargo xtask bpf`: the BPF object is committed; this rebuilds it, or checks that it is what its
//! sources make.
//!
//! Only the clang it was built with makes the same bytes. The note beside the object says which, and
//! carries digests of sources and object. With that clang here, `--check` rebuilds and compares bytes;
//! with another, or none, it compares the digests and says so.

use crate::error::{At, Error, Result};
use crate::{proc, workspace};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rebuilds the committed BPF object.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Compare instead of replacing; 1 when it is not what its sources make.
    #[arg(long)]
    check: bool,
}

const SOURCES: [&str; 6] = ["ask.h", "kernel.h", "pindown.bpf.c", "report.h", "state.h", "syscalls.h"];

pub(crate) fn run(args: Args) -> Result<i32> {
    let dir = workspace::root().join("crates/pindown/src/bpf");
    if args.check {
        return check(&dir);
    }
    let clang = Clang::find(None)?;
    let object = clang.build(&dir)?;
    let path = dir.join("pindown.bpf.o");
    fs::write(&path, &object).at("write", &path)?;
    let note = Note { clang: clang.version.clone(), sources: sources(&dir)?, object: digest(&object) };
    let path = dir.join("pindown.bpf.o.note");
    fs::write(&path, note.to_string()).at("write", &path)?;
    println!("built with clang {}", clang.version);
    Ok(0)
}

fn check(dir: &Path) -> Result<i32> {
    let path = dir.join("pindown.bpf.o");
    let committed = fs::read(&path).at("read", &path)?;
    let note = Note::read(&dir.join("pindown.bpf.o.note"))?;
    if note.sources != sources(dir)? || note.object != digest(&committed) {
        println!("the BPF object is not of these sources: run `cargo xtask bpf` and commit the result");
        return Ok(1);
    }
    let Ok(clang) = Clang::find(Some(&note.clang)) else {
        println!(
            "digests agree; bytes were not compared: the object is of clang {}, which is not here",
            note.clang
        );
        return Ok(0);
    };
    let same = clang.build(dir)? == committed;
    println!("clang {}: {}", clang.version, if same { "the same bytes" } else { "other bytes" });
    Ok(i32::from(!same))
}

/// FNV-1a, 64 bits: against mistakes, not against malice.
fn digest(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

fn sources(dir: &Path) -> Result<String> {
    let mut all = Vec::new();
    for name in SOURCES {
        let path = dir.join(name);
        all.extend(fs::read(&path).at("read", &path)?);
    }
    Ok(digest(&all))
}

struct Note {
    clang: String,
    sources: String,
    object: String,
}

impl Note {
    fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).at("read", path)?;
        let value = |key: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(key));
            line.map(|v| v.trim().to_owned()).ok_or_else(|| Error::Missing {
                what: format!("`{key}` in {}", path.display()),
                remedy: "run `cargo xtask bpf`".into(),
            })
        };
        Ok(Self { clang: value("clang ")?, sources: value("sources ")?, object: value("object ")? })
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "clang {}\nsources {}\nobject {}", self.clang, self.sources, self.object)
    }
}

struct Clang {
    program: PathBuf,
    strip: PathBuf,
    version: String,
}

impl Clang {
    /// The clang of exactly `wanted`, or any.
    fn find(wanted: Option<&str>) -> Result<Self> {
        let major = wanted.and_then(|w| w.split('.').next()).map(|m| format!("-{m}")).unwrap_or_default();
        let names = [major.as_str(), ""];
        let found = names.iter().filter_map(|suffix| Self::named(suffix));
        found.into_iter().find(|c| wanted.is_none_or(|w| w == c.version)).ok_or_else(|| Error::Missing {
            what: format!("clang {}", wanted.unwrap_or("(any)")),
            remedy: "install clang and llvm".into(),
        })
    }

    fn named(suffix: &str) -> Option<Self> {
        let program = proc::find_program(&format!("clang{suffix}"))?;
        let text = proc::output(Command::new(&program).arg("--version")).ok()?;
        let version = text.split_once("version ")?.1.split([' ', '\n']).next()?.to_owned();
        let major = version.split('.').next()?;
        let strip = proc::find_program(&format!("llvm-strip-{major}"))
            .or_else(|| proc::find_program("llvm-strip"))?;
        Some(Self { program, strip, version })
    }

    /// Compiles and drops DWARF, which names directories of this machine; BTF stays.
    fn build(&self, dir: &Path) -> Result<Vec<u8>> {
        let target = workspace::target();
        fs::create_dir_all(&target).at("create", &target)?;
        let out = target.join(format!("pindown.bpf.{}.o", std::process::id()));
        let prefix = format!("-fdebug-prefix-map={}=.", dir.display());
        let mut clang = Command::new(&self.program);
        clang.current_dir(dir).args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror"]);
        clang.args(["-Wno-unused-function", &prefix, "-c", "pindown.bpf.c", "-o"]).arg(&out);
        proc::output(&mut clang)?;
        proc::output(Command::new(&self.strip).arg("-g").arg(&out))?;
        let object = fs::read(&out).at("read", &out)?;
        fs::remove_file(&out).at("remove", &out)?;
        Ok(object)
    }
}
