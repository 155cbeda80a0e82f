//! The small page through which other processes see a cache's counters.
//!
//! One file a cache, `/dev/shm/pindown.UID/PID.N`: lines of `name value`, replaced as a whole by
//! rename(2) so that a reader never sees half of it. Readable by the user and root alone.

use std::fmt::Write;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use pindown_core::{Cache, Provider, Stats};

use crate::metrics;

const SHM: &str = "/dev/shm";
const PREFIX: &str = "pindown.";
/// Of the format.
const VERSION: &str = "pindown 1";

/// This process's side.
#[derive(Debug)]
pub(crate) struct Page {
    file: PathBuf,
    pid: u32,
    last: Option<Stats>,
}

impl Page {
    /// `None` where there is no place that only this user can write.
    pub(crate) fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let directory = own_directory().ok()?;
        let pid = std::process::id();
        let file = directory.join(format!("{pid}.{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        Some(Self { file, pid, last: None })
    }

    /// Publishes the counters if they changed. Failures are of no consequence to the program.
    pub(crate) fn write<P: Provider>(&mut self, cache: &Cache<P>) {
        let stats = cache.stats();
        if self.last == Some(stats) && self.file.exists() {
            return;
        }
        let new = self.file.with_extension("new");
        if fs::write(&new, text(cache, &stats)).and_then(|()| fs::rename(&new, &self.file)).is_ok() {
            self.last = Some(stats);
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            fs::remove_file(&self.file).ok();
        }
    }
}

/// Made for this user alone; refused if somebody else made it first.
fn own_directory() -> io::Result<PathBuf> {
    let uid = crate::sys::effective_uid();
    let directory = Path::new(SHM).join(format!("{PREFIX}{uid}"));
    DirBuilder::new().mode(0o700).create(&directory).or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(error),
    })?;
    let found = fs::symlink_metadata(&directory)?;
    if !found.is_dir() || found.uid() != uid || found.mode() & 0o077 != 0 {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    Ok(directory)
}

fn text<P: Provider>(cache: &Cache<P>, stats: &Stats) -> String {
    let command = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let mut out = format!(
        "{VERSION}\ncommand {}\nprovider {}\nmonitor {}\npolicy {}\nmax_bytes {}\nmax_regions {}\n",
        command.trim_end(),
        cache.provider().name(),
        cache.monitor().name(),
        cache.config().policy.name(),
        cache.max_bytes(),
        cache.max_regions()
    );
    metrics::fields(stats).for_each(|(name, value)| _ = writeln!(out, "{name} {value}"));
    out
}

/// One cache of a running process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// Of its process.
    pub pid: u32,
    /// Which of that process's caches.
    pub cache: u32,
    /// Name of the program.
    pub command: String,
    /// Name of the provider.
    pub provider: String,
    /// Name of the monitor.
    pub monitor: String,
    /// Name of the eviction policy.
    pub policy: String,
    /// Most bytes that may be registered at a time.
    pub max_bytes: u64,
    /// Most registrations at a time.
    pub max_regions: u64,
    /// Its counters, at most a second old.
    pub stats: Stats,
}

/// The caches of all running processes that this user may see: its own, or, for root, everybody's.
/// Files of processes that ended without tidying up are removed.
pub fn running() -> Vec<Exported> {
    let own = format!("{PREFIX}{}", crate::sys::effective_uid());
    let names = fs::read_dir(SHM).into_iter().flatten().flatten().map(|e| e.file_name());
    let of_pindown = names.filter_map(|n| n.into_string().ok()).filter(|n| n.starts_with(PREFIX));
    let mine = of_pindown.filter(|n| *n == own || crate::sys::effective_uid() == 0);
    let files = mine.flat_map(|n| fs::read_dir(Path::new(SHM).join(n)).into_iter().flatten().flatten());
    let mut found: Vec<_> = files.filter_map(|f| read(&f.path())).collect();
    found.sort_by_key(|e| (e.pid, e.cache));
    found
}

fn read(file: &Path) -> Option<Exported> {
    let (pid, cache) = file.file_name()?.to_str()?.split_once('.')?;
    let (pid, cache) = (pid.parse().ok()?, cache.parse().ok()?);
    if !Path::new("/proc").join(format!("{pid}")).exists() {
        fs::remove_file(file).ok();
        return None;
    }
    parse(&fs::read_to_string(file).ok()?).map(|e| Exported { pid, cache, ..e })
}

fn parse(text: &str) -> Option<Exported> {
    let mut lines = text.lines();
    if lines.next() != Some(VERSION) {
        return None;
    }
    let mut found = Exported::default();
    for (name, value) in lines.filter_map(|l| l.split_once(' ')) {
        let number = || value.parse().unwrap_or(0);
        match name {
            "command" => found.command = value.to_owned(),
            "provider" => found.provider = value.to_owned(),
            "monitor" => found.monitor = value.to_owned(),
            "policy" => found.policy = value.to_owned(),
            "max_bytes" => found.max_bytes = number(),
            "max_regions" => found.max_regions = number(),
            _ => metrics::set(&mut found.stats, name, number()),
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::sim::Sim;
    use crate::{Builder, MonitorChoice};

    #[test]
    fn what_is_written_is_read_by_others_and_goes_with_its_cache() {
        let cache = Builder::new(Sim::new()).monitor(MonitorChoice::Manual).export(false).build().unwrap();
        let Some(mut page) = Page::new() else { return println!("skipped: {SHM} cannot be used here") };
        let memory = [0u8; 8192];
        assert!(cache.lookup(memory.as_ptr(), memory.len(), crate::Access::READ).is_none());
        page.write(&cache);
        let number: u32 = page.file.extension().and_then(|e| e.to_str()).unwrap().parse().unwrap();
        let mine = |e: &Exported| e.pid == std::process::id() && e.cache == number;
        let found = running().into_iter().find(mine).expect("seen");
        assert_eq!((found.stats.misses, found.stats), (1, cache.stats()));
        assert_eq!((found.provider.as_str(), found.monitor.as_str()), ("sim", "manual"));
        assert_eq!(found.max_bytes, cache.max_bytes());
        drop(page);
        assert!(!running().iter().any(mine));
    }

    #[test]
    fn other_versions_and_junk_are_passed_over() {
        assert_eq!(parse("pindown 2\nhits 1\n"), None);
        let found = parse("pindown 1\nhits 5\nnew_thing 3\nhits x\nunmap 9\n").expect("this version");
        assert_eq!((found.stats.hits, found.stats.events[0]), (0, 9));
    }
}
