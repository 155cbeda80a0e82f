//! Prepared directories: built once under a lock, put in place by a rename.

use crate::error::{At, Result};
use crate::workspace;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

const NOTE: &str = "note";
const RECIPE: &str = "recipe";

/// Holds a lock file until dropped.
pub(crate) struct Lock(#[allow(dead_code, reason = "closing it unlocks")] File);

/// Waits for the lock of `name`, so that runs side by side prepare once.
pub(crate) fn lock(name: &str) -> Result<Lock> {
    let dir = workspace::lab().join("locks");
    fs::create_dir_all(&dir).at("create", &dir)?;
    let path = dir.join(name);
    let file = File::create(&path).at("create", &path)?;
    flock(&file, FlockOperation::LockExclusive).map_err(Into::into).at("lock", &path)?;
    Ok(Lock(file))
}

/// Returns the directory of `name`, built by `build` unless one of the same recipe is there.
///
/// `build` fills the directory that it is given and returns a note of the versions it took.
pub(crate) fn get(
    name: &str,
    recipe: &str,
    refresh: bool,
    build: impl FnOnce(&Path) -> Result<String>,
) -> Result<PathBuf> {
    let _lock = lock(name)?;
    let dir = workspace::lab().join(name);
    let current = fs::read_to_string(dir.join(RECIPE)).is_ok_and(|r| r == recipe);
    if current && !refresh {
        return Ok(dir);
    }
    eprintln!("lab: preparing {name} ...");
    let start = Instant::now();
    let fresh = workspace::lab().join(format!("{name}.new"));
    remove(&fresh)?;
    fs::create_dir_all(&fresh).at("create", &fresh)?;
    let note = build(&fresh)?;
    write(&fresh.join(NOTE), &note)?;
    write(&fresh.join(RECIPE), recipe)?;
    remove(&dir)?;
    fs::rename(&fresh, &dir).at("rename", &fresh)?;
    let seconds = start.elapsed().as_secs_f32();
    eprintln!("lab: prepared {name} in {seconds:.1} s: {note}");
    Ok(dir)
}

/// The note of versions that its preparation left.
pub(crate) fn note(dir: &Path) -> String {
    fs::read_to_string(dir.join(NOTE)).unwrap_or_default()
}

/// Removes a directory tree, if there is one.
pub(crate) fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e).at("remove", dir),
        _ => Ok(()),
    }
}

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).at("write", path)
}
