//! Under a memory limit of a control group a registration is refused or others are evicted; the OOM killer
//! is never called. Needs a memory controller (version 1 or 2) in which this user may make a group.
#![cfg(all(feature = "io-uring", feature = "uffd"))]

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use io_uring::IoUring;
use pindown::provider::io_uring::UringProvider;
use pindown::{Access, AcquireError, Builder, MonitorChoice};

const LIMIT_BYTES: usize = 96 << 20;
/// Set in the process that lives under the limit.
const CHILD: &str = "PINDOWN_CGROUP_CHILD";

/// A group of its own below this process's.
struct Group {
    path: PathBuf,
    is_v1: bool,
}

impl Group {
    fn make() -> Result<Self, String> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let of = |controller: &str| {
            groups.lines().find_map(|l| {
                let mut fields = l.splitn(3, ':').skip(1);
                let found = fields.next()?.split(',').any(|c| c == controller);
                found.then(|| fields.next().map(|p| p.trim_start_matches('/').to_owned()))?
            })
        };
        let v1 = of("memory").map(|path| Path::new("/sys/fs/cgroup/memory").join(path));
        let (parent, is_v1) = match v1.filter(|p| p.exists()) {
            Some(parent) => (parent, true),
            None => (Path::new("/sys/fs/cgroup").join(of("").unwrap_or_default()), false),
        };
        let path = parent.join(format!("pindown-test-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let group = Self { path, is_v1 };
        let limit = if is_v1 { "memory.limit_in_bytes" } else { "memory.max" };
        group.write(limit, &LIMIT_BYTES.to_string()).map_err(|e| format!("{limit}: {e}"))?;
        Ok(group)
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        std::fs::write(self.path.join(file), text)
    }

    /// How many processes the OOM killer ended in it.
    fn oom_kills(&self) -> u64 {
        let file = if self.is_v1 { "memory.oom_control" } else { "memory.events" };
        let text = std::fs::read_to_string(self.path.join(file)).expect(file);
        let line = text.lines().find_map(|l| l.strip_prefix("oom_kill "));
        line.and_then(|n| n.trim().parse().ok()).expect("a count of kills")
    }

    fn peak_bytes(&self) -> Option<u64> {
        let file = if self.is_v1 { "memory.max_usage_in_bytes" } else { "memory.peak" };
        std::fs::read_to_string(self.path.join(file)).ok()?.trim().parse().ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.path).ok();
    }
}

fn anonymous(len: usize) -> *mut u8 {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

fn unmap(at: *mut u8, len: usize) {
    // SAFETY: our own mapping, which nobody refers to any more.
    assert_eq!(unsafe { libc::munmap(at.cast(), len) }, 0);
}

/// Run by the test below, in a process under the limit.
#[test]
fn child_under_a_limit() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let ring = IoUring::new(8).expect("the parent checked");
    let provider = UringProvider::new(&ring).expect("a table of buffers");
    let cache = Builder::new(provider).monitor(MonitorChoice::Uffd).export(false).build().expect("builds");
    assert!(cache.max_bytes() <= LIMIT_BYTES as u64 / 2, "half of the limit: {}", cache.max_bytes());

    // Never touched: registering it would make the kernel allocate all of it.
    let huge = anonymous(4 * LIMIT_BYTES);
    // SAFETY: nothing is transferred.
    let refused = unsafe { cache.acquire(huge, 4 * LIMIT_BYTES, Access::READ) };
    let error = refused.expect_err("more than the group may have");
    assert!(matches!(error, AcquireError::Budget { .. }), "{error:?}");
    assert!(error.to_string().contains("max_bytes"), "says what to do: {error}");
    unmap(huge, 4 * LIMIT_BYTES);

    // Memory comes and goes, ten times the limit in all; what is unmapped stays pinned for a while.
    let piece = 2 << 20;
    for _ in 0..10 * LIMIT_BYTES / piece {
        let at = anonymous(piece);
        // SAFETY: nothing is transferred.
        drop(unsafe { cache.acquire(at, piece, Access::READ_WRITE) }.expect("others are evicted"));
        unmap(at, piece);
    }
    let stats = cache.stats();
    assert!(stats.bytes_registered_peak <= cache.max_bytes(), "{stats:?}");
    println!("lived: {stats:?}");
}

#[test]
fn a_limit_means_errors_or_eviction_and_never_the_oom_killer() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    if let Err(error) = IoUring::new(8) {
        return println!("skipped: no io_uring here: {error}");
    }
    let group = match Group::make() {
        Ok(group) => group,
        Err(why) => return println!("skipped: no control group can be made here: {why}"),
    };
    let exe = std::env::current_exe().expect("this test");
    let script = format!(
        "echo $$ >'{}/cgroup.procs' && exec \"$0\" --exact child_under_a_limit --nocapture --test-threads 1",
        group.path.display()
    );
    let out = Command::new("sh").args(["-c", &script]).arg(exe).env(CHILD, "1").output().expect("sh(1)");
    let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if errors.contains("cgroup.procs") {
        return println!("skipped: no process may move into the group: {errors}");
    }
    println!("at most {:?} of {LIMIT_BYTES} bytes", group.peak_bytes());
    assert_eq!(group.oom_kills(), 0, "{text}\n{errors}");
    if text.contains("no cache with uffd") {
        return println!("skipped: {text}");
    }
    assert!(out.status.success() && text.contains("lived: "), "{:?} {text}\n{errors}", out.status);
}
