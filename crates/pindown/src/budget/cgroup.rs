//! The memory limit of this process's control groups.

use std::fs;
use std::path::{Path, PathBuf};

/// The least limit on the way up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GroupLimit {
    pub(super) bytes: u64,
    /// The file that says so.
    pub(super) file: PathBuf,
}

/// cgroup v1 says "no limit" by a number near 2^63, rounded to pages.
const V1_NO_LIMIT: u64 = 1 << 60;

/// Reads `/proc/self/cgroup` (cgroups(7)) and the limits of the groups named there and of those that
/// contain them. `root` is `/`, but in tests. `None`: no limit, or no control groups.
pub(super) fn memory_limit(root: &Path) -> Option<GroupLimit> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    groups.lines().flat_map(|line| limits_of(root, line)).min_by_key(|l| l.bytes)
}

/// A line is `hierarchy:controllers:path`; v2's is `0::path`.
fn limits_of(root: &Path, line: &str) -> Vec<GroupLimit> {
    let mut fields = line.splitn(3, ':');
    let (Some(id), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
        return Vec::new();
    };
    let (mount, file) = match (id, controllers) {
        ("0", "") => ("sys/fs/cgroup", "memory.max"),
        (_, list) if list.split(',').any(|c| c == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    let mount = root.join(mount);
    let group = Path::new(path.trim_start_matches('/'));
    // In a container the path may be the host's, and only the mount's own root is there.
    group.ancestors().filter_map(|up| read_limit(mount.join(up).join(file))).collect()
}

fn read_limit(file: PathBuf) -> Option<GroupLimit> {
    let bytes: u64 = fs::read_to_string(&file).ok()?.trim().parse().ok()?; // "max" is no number
    (bytes < V1_NO_LIMIT).then_some(GroupLimit { bytes, file })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree as the kernel shows it.
    fn tree(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("pindown-cgroup-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn limit(name: &str, files: &[(&str, &str)]) -> Option<(u64, String)> {
        let root = tree(name, files);
        let limit = memory_limit(&root);
        let relative = |l: GroupLimit| (l.bytes, l.file.strip_prefix(&root).unwrap().display().to_string());
        let found = limit.map(relative);
        fs::remove_dir_all(root).unwrap();
        found
    }

    #[test]
    fn the_least_on_the_way_up_counts() {
        let found = limit(
            "v2",
            &[
                ("proc/self/cgroup", "0::/a/b\n"),
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("sys/fs/cgroup/a/memory.max", "1048576\n"),
            ],
        );
        assert_eq!(found, Some((1 << 20, "sys/fs/cgroup/a/memory.max".to_owned())));
    }

    #[test]
    fn version_1_and_its_way_of_saying_none() {
        let files = |value| {
            [
                ("proc/self/cgroup", "5:cpu:/x\n4:memory,hugetlb:/x\n0::/\n"),
                ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", value),
            ]
        };
        assert_eq!(limit("v1", &files("8192\n")).map(|l| l.0), Some(8192));
        assert_eq!(limit("none", &files("9223372036854771712\n")), None);
    }

    #[test]
    fn in_a_container_the_mounts_root_counts() {
        let found = limit(
            "container",
            &[("proc/self/cgroup", "0::/docker/1234\n"), ("sys/fs/cgroup/memory.max", "4096\n")],
        );
        assert_eq!(found.map(|l| l.0), Some(4096));
    }
}
