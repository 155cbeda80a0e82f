//! Limits that registrations run into.

use super::{cgroup, status_field};
use crate::budget::kernel_memory::KernelMemory;
use crate::sys::headroom;
use crate::sys::limits::{binding_memlock_bytes, memlock_bytes, open_files};
use crate::sys::procmap::ProcMap;

/// A limit, or how much of one is used.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitFact {
    /// Its name, e.g. `"RLIMIT_MEMLOCK"`.
    pub name: &'static str,
    /// Its value; `None`: unlimited, or not known.
    pub value: Option<u64>,
    /// Of what: `"bytes"`, `"mappings"`, `"descriptors"`.
    pub unit: &'static str,
    /// Whether it binds this process.
    pub binds: bool,
    /// The file or call that says so.
    pub source: &'static str,
    /// How to raise it, or what it means.
    pub remedy: &'static str,
}

/// All limits that pindown knows to matter.
pub fn limits() -> Vec<LimitFact> {
    let mut all = memlock();
    all.extend(mappings());
    all.push(descriptors());
    all.push(memory());
    all.push(default_budget());
    all.extend(crate::budget::kernel_memory::ALL.iter().map(kernel_memory));
    all
}

fn memlock() -> Vec<LimitFact> {
    let limit = memlock_bytes();
    let binds = binding_memlock_bytes().is_some();
    let raise = if binds {
        "io_uring and RDMA count pinned bytes of all processes of a user against it: raise `ulimit -l` \
         (limits.conf, LimitMEMLOCK=, --ulimit memlock=), or set max_bytes below it"
    } else {
        "does not bind this process (unlimited, or CAP_IPC_LOCK)"
    };
    let kib = |name| {
        status_field(name).and_then(|v| v.split_whitespace().next()?.parse::<u64>().ok()).map(|k| k << 10)
    };
    let used = |name, field, remedy| LimitFact {
        name,
        value: kib(field),
        unit: "bytes",
        binds: false,
        source: "/proc/self/status",
        remedy,
    };
    let source = "getrlimit(2)";
    vec![
        LimitFact { name: "RLIMIT_MEMLOCK", value: limit, unit: "bytes", binds, source, remedy: raise },
        used("locked by this process", "VmLck", "mlocked bytes count against RLIMIT_MEMLOCK"),
        used("pinned by this process", "VmPin", "what devices have pinned of this process"),
    ]
}

fn mappings() -> Vec<LimitFact> {
    let most = headroom::max_map_count() as u64;
    let used = ProcMap::open()
        .ok()
        .filter(ProcMap::has_query)
        .map(|map| headroom::mappings_in_use(&map, most as usize) as u64)
        .or_else(|| Some(std::fs::read_to_string("/proc/self/maps").ok()?.lines().count() as u64));
    let fact = |name, value, binds, source, remedy| LimitFact {
        name,
        value,
        unit: "mappings",
        binds,
        source,
        remedy,
    };
    let crowded = used.is_some_and(|used| used >= most / 2);
    vec![
        fact(
            "vm.max_map_count",
            Some(most),
            crowded,
            "/proc/sys/vm/max_map_count",
            "raise it with `sysctl vm.max_map_count=`: at half of it the uffd monitor stops arming, so \
             that the application's own malloc never meets it",
        ),
        fact(
            "mappings in use",
            used,
            false,
            "PROCMAP_QUERY on /proc/self/maps",
            "of this process now; armed mappings do not merge with their neighbours",
        ),
    ]
}

fn descriptors() -> LimitFact {
    LimitFact {
        name: "RLIMIT_NOFILE",
        value: open_files(),
        unit: "descriptors",
        binds: open_files().is_some_and(|n| n < 64),
        source: "getrlimit(2)",
        remedy: "a cache needs a few descriptors: raise `ulimit -n`",
    }
}

fn memory() -> LimitFact {
    let (value, source) = match cgroup::memory_limit_bytes() {
        Some(limit) => (limit.bytes, limit.source),
        None => (None, "/proc/self/cgroup"),
    };
    let total = total_memory_bytes();
    LimitFact {
        name: "cgroup memory",
        value,
        unit: "bytes",
        binds: value.zip(total).is_some_and(|(limit, total)| limit < total),
        source,
        remedy: "pinned pages cannot be reclaimed: keep max_bytes well below it, or raise it (memory.max, \
                 --memory)",
    }
}

fn default_budget() -> LimitFact {
    LimitFact {
        name: "default max_bytes",
        value: crate::budget::default_max_bytes(u64::MAX),
        unit: "bytes",
        binds: false,
        source: "7/8 of RLIMIT_MEMLOCK, 1/2 of the cgroup's limit, 1/2 of memory: the least",
        remedy: "what a cache registers at most unless max_bytes says otherwise; refusals lower it for a while",
    }
}

/// The price of a GiB of 4 KiB pages, in 64 KiB registrations.
fn kernel_memory(of: &KernelMemory) -> LimitFact {
    let name = match of.provider {
        "io-uring" => "kernel memory, io-uring",
        "verbs" => "kernel memory, verbs",
        _ => "kernel memory, odp",
    };
    LimitFact {
        name,
        value: Some(of.bytes(1 << 18, 1 << 14)),
        unit: "bytes",
        binds: false,
        source: of.source,
        remedy: "estimated for each GiB registered in pieces of 64 KiB, beside the pages themselves",
    }
}

/// MemTotal of `/proc/meminfo`.
fn total_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?.split_whitespace().next()?;
    kib.parse::<u64>().ok().map(|k| k << 10)
}
