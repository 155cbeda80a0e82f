//! `cargo xtask header`: `pindown.h` is committed; this makes it from the source, or checks that it is what the source
//! makes. One version of cbindgen, so that a difference is the source's.

use super::crate_dir;
use crate::error::{At, Error, Result};
use crate::{cargo, proc, workspace};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// As `cbindgen --version` says it.
const VERSION: &str = "0.29.4";

/// Makes the committed C header anew.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Compare instead of replacing; 1 when it is not what the source makes.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: Args) -> Result<i32> {
    let path = crate_dir().join("pindown.h");
    let made = generate(&cbindgen()?)?;
    if !args.check {
        fs::write(&path, made).at("write", &path)?;
        println!("made with cbindgen {VERSION}");
        return Ok(0);
    }
    let same = fs::read(&path).at("read", &path)? == made;
    println!(
        "{}",
        if same {
            "pindown.h is what its source makes"
        } else {
            "pindown.h is not of this source: run `cargo xtask header` and commit the result"
        }
    );
    Ok(i32::from(!same))
}

fn generate(cbindgen: &Path) -> Result<Vec<u8>> {
    let target = workspace::target();
    fs::create_dir_all(&target).at("create", &target)?;
    let out = target.join(format!("pindown.{}.h", std::process::id()));
    let mut c = Command::new(cbindgen);
    c.current_dir(crate_dir()).args(["--quiet", "--config", "cbindgen.toml", "--output"]).arg(&out).arg(".");
    proc::output(&mut c)?;
    let made = fs::read(&out).at("read", &out)?;
    fs::remove_file(&out).at("remove", &out)?;
    Ok(made)
}

/// The one on PATH if it is of the version, else one of our own, built once.
fn cbindgen() -> Result<PathBuf> {
    let root = workspace::target().join("tools");
    let own = root.join("bin/cbindgen");
    let candidates = [proc::find_program("cbindgen"), Some(own.clone())];
    if let Some(found) = candidates.into_iter().flatten().find(|c| version(c).as_deref() == Some(VERSION)) {
        return Ok(found);
    }
    eprintln!("building cbindgen {VERSION}");
    let version = format!("={VERSION}");
    let mut c = cargo::command(&["install", "--quiet", "--locked", "cbindgen", "--version", &version]);
    c.arg("--root").arg(&root).arg("--target-dir").arg(root.join("build"));
    // It runs for a second: compiling it fast matters more.
    c.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0").env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    proc::output(&mut c).map_err(|e| Error::Missing {
        what: format!("cbindgen {VERSION} ({e})"),
        remedy: format!("cargo install --locked cbindgen --version ={VERSION}"),
    })?;
    Ok(own)
}

fn version(program: &Path) -> Option<String> {
    let text = proc::output(Command::new(program).arg("--version")).ok()?;
    Some(text.trim().strip_prefix("cbindgen ")?.to_owned())
}
