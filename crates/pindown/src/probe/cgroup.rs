//! The memory limit of this process's control group, version 1 or 2 (`cgroups(7)`).

use std::fs;
use std::path::{Path, PathBuf};

/// A limit and where it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryLimit {
    /// `None`: unlimited.
    pub(super) bytes: Option<u64>,
    pub(super) source: &'static str,
}

/// The lowest limit between this process's group and the root; `None` without a memory controller.
pub(super) fn memory_limit_bytes() -> Option<MemoryLimit> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    limit_in(&groups, Path::new("/sys/fs/cgroup"))
}

fn limit_in(groups: &str, root: &Path) -> Option<MemoryLimit> {
    let lines = || groups.lines().filter_map(parse_line);
    if let Some((_, path)) = lines().find(|(controllers, _)| controllers.split(',').any(|c| c == "memory")) {
        let mount = root.join("memory");
        return lowest(&mount, path, "memory.limit_in_bytes", "memory.limit_in_bytes of the cgroup (v1)");
    }
    let (_, path) = lines().find(|(controllers, _)| controllers.is_empty())?;
    lowest(root, path, "memory.max", "memory.max of the cgroup (v2)")
}

/// `hierarchy:controllers:path`.
fn parse_line(line: &str) -> Option<(&str, &str)> {
    let mut fields = line.splitn(3, ':').skip(1);
    Some((fields.next()?, fields.next()?))
}

/// The lowest of the values of `file` from `path` up to `mount`. In a container the path may lead
/// outside of what is mounted: then the mount's own file is all there is.
fn lowest(mount: &Path, path: &str, file: &str, source: &'static str) -> Option<MemoryLimit> {
    let group = mount.join(path.trim_start_matches('/'));
    let up: Vec<PathBuf> = group.ancestors().take_while(|p| p.starts_with(mount)).map(Into::into).collect();
    let read = |dir: &PathBuf| fs::read_to_string(dir.join(file)).ok();
    let bytes = up.iter().filter_map(read).filter_map(|text| value(text.trim())).min();
    mount.exists().then_some(MemoryLimit { bytes, source })
}

/// `max` and what version 1 writes for it (the largest multiple of the page size) are no limit.
fn value(text: &str) -> Option<u64> {
    text.parse().ok().filter(|&bytes: &u64| bytes < u64::MAX >> 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of `(file, content)` below a directory of its own.
    fn tree(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("pindown-cgroup-{name}-{}", std::process::id()));
        for (file, text) in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn version_2_takes_the_lowest_on_the_way_up() {
        let root = tree("v2", &[("a/memory.max", "4096000\n"), ("a/b/memory.max", "max\n")]);
        let limit = limit_in("0::/a/b\n", &root).unwrap();
        assert_eq!((limit.bytes, limit.source), (Some(4_096_000), "memory.max of the cgroup (v2)"));
        assert_eq!(limit_in("0::/elsewhere\n", &root).unwrap().bytes, None);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn version_1_by_its_controller() {
        let unlimited = "9223372036854771712\n";
        let files =
            [("memory/x/memory.limit_in_bytes", "123456\n"), ("memory/memory.limit_in_bytes", unlimited)];
        let root = tree("v1", &files);
        let groups = "12:cpu,cpuacct:/x\n7:memory:/x\n0::/y\n";
        assert_eq!(limit_in(groups, &root).unwrap().bytes, Some(123_456));
        assert_eq!(limit_in("7:memory:/\n", &root).unwrap().bytes, None);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn odd_lines_are_no_limit() {
        assert_eq!(limit_in("", Path::new("/nonexistent")), None);
        assert_eq!(limit_in("nonsense\n", Path::new("/nonexistent")), None);
    }
}
