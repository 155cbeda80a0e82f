//! What the kernel offers this process.

use std::fs;
use std::path::Path;

use pindown_core::Host as _;

use super::{Fact, Standing, kernel_release, line, number, status_field};
use crate::LinuxHost;
use crate::sys::limits::has_capability;
use crate::sys::pagemap::Pagemap;
use crate::sys::procmap::ProcMap;
use crate::sys::{files, uffd};

const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Everything that a monitor or provider depends on, in the order of a report.
pub fn facilities() -> Vec<Fact> {
    let mut all = vec![
        Fact::new("kernel", kernel_release(), Standing::Plain, "/proc/sys/kernel/osrelease"),
        seccomp(),
        io_uring(),
        userfaultfd(),
        userfaultfd_device(),
        other_userfaultfds(),
        wp_async(),
    ];
    all.extend(proc_files());
    all.extend([membarrier(), multigrain_ctime(), pressure(), bpf(), btf(), lockdown(), kdreg2(), rdma()]);
    all
}

fn seccomp() -> Fact {
    let source = "Seccomp in /proc/self/status";
    match status_field("Seccomp").as_deref() {
        Some("2") => Fact::new("seccomp", "a filter is active", Standing::Plain, source).remedy(
            "where a call below is refused, allow it in the container's profile (io_uring_setup, \
             io_uring_enter, io_uring_register, userfaultfd, membarrier)",
        ),
        Some("0") => Fact::new("seccomp", "off", Standing::Plain, source),
        Some(mode) => Fact::new("seccomp", format!("mode {mode}"), Standing::Plain, source),
        None => Fact::new("seccomp", "not known", Standing::Plain, source),
    }
}

fn io_uring() -> Fact {
    let disabled = number("/proc/sys/kernel/io_uring_disabled");
    match (try_io_uring(), disabled) {
        (Ok(()), _) => Fact::new("io_uring", "available", Standing::Good, "io_uring_setup(2)"),
        (Err(why), Some(how @ 1..)) => {
            Fact::new("io_uring", why, Standing::Missing, "kernel.io_uring_disabled").remedy(if how == 1 {
                "join the group of kernel.io_uring_group, or `sysctl kernel.io_uring_disabled=0`"
            } else {
                "`sysctl kernel.io_uring_disabled=0`"
            })
        }
        (Err(why), _) => Fact::new("io_uring", why, Standing::Missing, "io_uring_setup(2)").remedy(
            "use Linux 5.19 or newer with CONFIG_IO_URING, and allow io_uring_setup, io_uring_enter and \
             io_uring_register in the container's seccomp profile",
        ),
    }
}

#[cfg(feature = "io-uring")]
fn try_io_uring() -> Result<(), String> {
    io_uring::IoUring::new(2).map(drop).map_err(|e| e.to_string())
}

#[cfg(not(feature = "io-uring"))]
fn try_io_uring() -> Result<(), String> {
    Err("built without the feature io-uring".into())
}

fn userfaultfd() -> Fact {
    let source = "userfaultfd(2) with UFFD_USER_MODE_ONLY";
    match uffd::by_syscall() {
        Ok(_) => Fact::new("userfaultfd", "available", Standing::Good, source),
        Err(e) => Fact::new("userfaultfd", e.to_string(), Standing::Missing, source).remedy(
            "allow userfaultfd in the container's seccomp profile (CONFIG_USERFAULTFD must be set), or give \
             access to /dev/userfaultfd",
        ),
    }
}

fn userfaultfd_device() -> Fact {
    let source = "/dev/userfaultfd";
    match uffd::by_device() {
        Ok(_) => Fact::new("userfaultfd device", "usable", Standing::Good, source),
        // Needed only where the call is refused.
        Err(e) => Fact::new("userfaultfd device", e.to_string(), Standing::Plain, source),
    }
}

/// Descriptors of userfaultfds in this process that are not the monitor's: what they watch cannot
/// be armed (EBUSY).
fn other_userfaultfds() -> Fact {
    let source = "/proc/self/fd";
    let links = fs::read_dir(source).into_iter().flatten().flatten().filter_map(|e| {
        let target = fs::read_link(e.path()).ok()?;
        target.to_str()?.contains("[userfaultfd]").then(|| e.file_name().into_string().ok()?.parse().ok())?
    });
    let others = links.filter(|&fd| !crate::sys::fork::is_private(fd)).count();
    let fact = |value: String, standing| Fact::new("other userfaultfd users", value, standing, source);
    match others {
        0 => fact("none in this process".into(), Standing::Plain),
        n => fact(format!("{n} in this process"), Standing::Restricted).remedy(
            "mappings that another userfaultfd watches are used uncached: use the ebpf monitor for them",
        ),
    }
}

fn wp_async() -> Fact {
    let works = uffd::open().is_ok();
    let remedy = "use Linux 6.7 or newer";
    Fact::either(works, "userfaultfd WP_ASYNC", "UFFDIO_API", remedy)
}

fn proc_files() -> Vec<Fact> {
    let query = ProcMap::open().is_ok_and(|map| map.has_query());
    let here = &raw const query as usize;
    let scan = Pagemap::open().and_then(|p| p.is_armed(here)).is_ok();
    vec![
        Fact::either(
            query,
            "PROCMAP_QUERY",
            "ioctl on /proc/self/maps",
            "use Linux 6.11 or newer (without it file mappings are not cached, and misses read /proc/self/maps)",
        ),
        Fact::either(scan, "PAGEMAP_SCAN", "ioctl on /proc/self/pagemap", "use Linux 6.7 or newer"),
    ]
}

fn membarrier() -> Fact {
    let remedy = "allow membarrier in the container's seccomp profile: without it hits count their holds, \
                  which costs some 10 ns";
    let works = LinuxHost::new().has_asymmetric_fence();
    Fact::either(works, "membarrier", "membarrier(2) PRIVATE_EXPEDITED", remedy)
}

fn multigrain_ctime() -> Fact {
    let remedy = "use Linux 6.13 or newer, or seal memfds (F_SEAL_SHRINK and F_SEAL_FUTURE_WRITE): else the \
                  uffd monitor does not cache them";
    Fact::either(files::has_multigrain_ctime(), "multigrain ctime", "statx(2) of a changing memfd", remedy)
}

fn pressure() -> Fact {
    let remedy = "use Linux 6.5 or newer with CONFIG_PSI (5.2 as root; psi=1 at boot where it is off): without \
                  it caches keep what they have when the machine is short of memory";
    let works = crate::sys::pressure::Pressure::watch().is_ok();
    Fact::either(works, "memory pressure events", "a trigger in /proc/pressure/memory", remedy)
}

fn bpf() -> Fact {
    let source = "CapEff in /proc/self/status";
    let has = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")].map(|(n, name)| (has_capability(n), name));
    if has_capability(CAP_SYS_ADMIN) || has.iter().all(|h| h.0) {
        return Fact::new("BPF capabilities", "available", Standing::Good, source);
    }
    let missing: Vec<_> = has.iter().filter(|h| !h.0).map(|h| h.1).collect();
    Fact::new("BPF capabilities", format!("without {}", missing.join(" and ")), Standing::Missing, source)
        .remedy(
            "run with CAP_BPF and CAP_PERFMON (setcap, AmbientCapabilities=, --cap-add), or use the helper",
        )
}

fn btf() -> Fact {
    let path = "/sys/kernel/btf/vmlinux";
    Fact::either(Path::new(path).exists(), "kernel BTF", path, "use a kernel with CONFIG_DEBUG_INFO_BTF")
}

fn lockdown() -> Fact {
    let path = "/sys/kernel/security/lockdown";
    match line(path) {
        None => Fact::new("lockdown", "not known (no securityfs)", Standing::Plain, path),
        Some(text) if text.contains("[confidentiality]") => {
            Fact::new("lockdown", text, Standing::Restricted, path)
                .remedy("lockdown=confidentiality refuses BPF tracing: use the uffd monitor")
        }
        Some(text) => Fact::new("lockdown", text, Standing::Plain, path),
    }
}

fn kdreg2() -> Fact {
    let path = "/dev/kdreg2";
    let value = if Path::new(path).exists() { "present" } else { "absent" };
    Fact::new("kdreg2", value, Standing::Plain, path)
}

fn rdma() -> Fact {
    let path = "/sys/class/infiniband";
    let mut names: Vec<_> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort();
    let value = if names.is_empty() { "no device".into() } else { names.join(", ") };
    Fact::new("RDMA devices", value, Standing::Plain, path)
}
