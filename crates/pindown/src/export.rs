//! The small page through which other processes see a cache's counters.
//!
//! One memory file a cache, found by its name among the descriptors of each process: lines of `name value`,
//! exchanged as a whole so that a reader never sees half of it. Readable by the user and root alone, and
//! gone with the process, however that ends.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use pindown_core::{Cache, Provider, Stats};

use crate::metrics;
use crate::sys::published::{self, Published};

/// Of the format.
const VERSION: &str = "pindown 2";

/// This process's side.
#[derive(Debug)]
pub(crate) struct Page {
    number: u32,
    last: Option<(Stats, Published)>,
}

impl Page {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), last: None }
    }

    /// Publishes the counters if they changed. Failures are of no consequence to the program.
    pub(crate) fn write<P: Provider>(&mut self, cache: &Cache<P>) {
        let stats = cache.stats();
        if self.last.as_ref().is_some_and(|(last, _)| *last == stats) {
            return;
        }
        let text = self.text(cache, &stats);
        let published = match self.last.take() {
            Some((_, mut old)) => old.replace(&text).map(|()| old),
            None => Published::new(&text),
        };
        self.last = published.ok().map(|published| (stats, published));
    }

    fn text<P: Provider>(&self, cache: &Cache<P>, stats: &Stats) -> String {
        let (process, number) = (std::process::id(), self.number);
        format!("{VERSION}\npid {process}\ncache {number}\n{}", text(cache, stats))
    }
}

fn text<P: Provider>(cache: &Cache<P>, stats: &Stats) -> String {
    let command = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let mut out = format!(
        "command {}\nprovider {}\nmonitor {}\npolicy {}\nmax_bytes {}\nmax_regions {}\n",
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

/// The caches of all running processes that this user may see: its own, or, for root, everybody's, those in
/// containers too.
pub fn running() -> Vec<Exported> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|p| p.file_name().to_str()?.parse().ok());
    let mut found: Vec<_> = numbers.flat_map(of_process).collect();
    found.sort_by_key(|e| (e.pid, e.cache));
    found
}

/// What a forked child has inherited bears its parent's number.
fn of_process(pid: u32) -> impl Iterator<Item = Exported> {
    let process = Path::new("/proc").join(pid.to_string());
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten();
    let files = descriptors.flatten().map(|d| d.path()).filter(|file| is_page(file));
    let found: Vec<_> = files.filter_map(|file: PathBuf| parse(&fs::read_to_string(file).ok()?)).collect();
    let own = if found.is_empty() { None } else { own_number(&process) };
    found.into_iter().filter(move |e| Some(e.pid) == own).map(move |e| Exported { pid, ..e })
}

/// Its pid as it sees itself: the last of those in nested namespaces (`NSpid` in proc_pid_status(5), Linux 4.1).
fn own_number(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

fn is_page(descriptor: &Path) -> bool {
    let name = |target: &Path| Some(target.to_str()?.strip_prefix("/memfd:")?.starts_with(published::NAME));
    fs::read_link(descriptor).is_ok_and(|target| name(&target) == Some(true))
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
            "pid" => found.pid = number() as u32,
            "cache" => found.cache = number() as u32,
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
        let mut page = Page::new();
        let memory = [0u8; 8192];
        assert!(cache.lookup(memory.as_ptr(), memory.len(), crate::Access::READ).is_none());
        page.write(&cache);
        let number = page.number;
        let mine = |e: &Exported| e.pid == std::process::id() && e.cache == number;
        assert!(cache.lookup(memory.as_ptr(), 1, crate::Access::READ).is_none());
        page.write(&cache); // exchanged
        assert_eq!(running().into_iter().filter(mine).count(), 1);
        let found = running().into_iter().find(mine).expect("seen");
        assert_eq!((found.stats.misses, found.stats), (2, cache.stats()));
        assert_eq!((found.provider.as_str(), found.monitor.as_str()), ("sim", "manual"));
        assert_eq!(found.max_bytes, cache.max_bytes());
        drop(page);
        assert!(!running().iter().any(mine));
    }

    #[test]
    fn other_versions_and_junk_are_passed_over() {
        assert_eq!(parse("pindown 1\nhits 1\n"), None);
        let found = parse("pindown 2\nhits 5\nnew_thing 3\nhits x\nunmap 9\n").expect("this version");
        assert_eq!((found.stats.hits, found.stats.events[0]), (0, 9));
    }
}
