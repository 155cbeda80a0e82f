//! A directory for one boot. Others leave it alone; those of killed runs are swept up.

use crate::error::{At, Result};
use crate::workspace;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Older unlocked directories belong to nobody; younger ones may be about to be locked.
const GRACE: Duration = Duration::from_secs(60);

pub(crate) struct WorkDir {
    path: PathBuf,
    lock: PathBuf,
    _held: File,
}

impl WorkDir {
    pub(crate) fn create() -> Result<Self> {
        let runs = workspace::lab().join("runs");
        fs::create_dir_all(&runs).at("create", &runs)?;
        sweep(&runs);
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let path = runs.join(format!("{}-{}", std::process::id(), now.as_nanos()));
        let lock = path.with_extension("lock");
        let held = File::create(&lock).at("create", &lock)?;
        flock(&held, FlockOperation::LockExclusive).map_err(Into::into).at("lock", &lock)?;
        fs::create_dir(&path).at("create", &path)?;
        Ok(Self { path, lock, _held: held })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.path).ok();
        fs::remove_file(&self.lock).ok();
    }
}

/// Removes what killed runs left. Best effort: the next one tries again.
fn sweep(runs: &Path) {
    for entry in fs::read_dir(runs).into_iter().flatten().flatten() {
        let lock = entry.path();
        let is_lock = lock.extension().is_some_and(|e| e == "lock");
        let age = entry.metadata().and_then(|m| m.modified()).map(|t| t.elapsed());
        let old = matches!(age, Ok(Ok(age)) if age > GRACE);
        let Ok(file) = File::open(&lock) else {
            continue;
        };
        if is_lock && old && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            fs::remove_dir_all(lock.with_extension("")).ok();
            fs::remove_file(&lock).ok();
        }
    }
}
