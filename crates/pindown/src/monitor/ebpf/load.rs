//! Loads and attaches the programs.

use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya::maps::{Map, MapData};
use aya::programs::{BtfTracePoint, FEntry, FExit, Iter, Program};
use aya::{Btf, Ebpf, EbpfLoader};
use pindown_core::MonitorError;

use super::hooks::{Hook, Kernel, Place, Variant, is_realtime_kernel};
use crate::sys::bpf;
use crate::sys::fork::PrivateFd;

/// The compiled programs: `bpf/pindown.bpf.c`, rebuilt and compared by `cargo xtask bpf --check`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/pindown.bpf.o");

const REMEDY: &str =
    "run as root, with CAP_BPF and CAP_PERFMON, or start `pindown helper`; on Linux 6.1 or later with BTF";

/// Attached programs and the maps they share.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) variant: Variant,
    pub(crate) hooks: Vec<Hook>,
    /// The programs stay attached while any copy of these is open, in any process. A forked child
    /// keeps none.
    pub(crate) links: Vec<PrivateFd>,
    pub(crate) maps: Maps,
    pub(crate) find_mm: OwnedFd,
    pub(crate) forget: OwnedFd,
}

/// Descriptors of the maps that user space touches (bpf/state.h).
#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) status_of: OwnedFd,
    pub(crate) filter_of: OwnedFd,
    pub(crate) ring_of: OwnedFd,
    pub(crate) mms: OwnedFd,
    pub(crate) request: OwnedFd,
}

fn refused(what: &'static str, why: impl Display) -> MonitorError {
    MonitorError::Unavailable { what, remedy: REMEDY, source: Some(io::Error::other(why.to_string())) }
}

/// Loads `wanted`, or the best that the kernel accepts; `hidden` (a test switch) is left out.
pub(crate) fn load(wanted: Option<Variant>, hidden: Option<&str>) -> Result<Loaded, MonitorError> {
    if !cfg!(target_arch = "x86_64") {
        return Err(refused("eBPF on this architecture", "only x86-64 system calls are known to it"));
    }
    if !may_load() {
        return Err(refused("CAP_BPF and CAP_PERFMON", "this process lacks one or both"));
    }
    let btf = Btf::from_sys_fs().map_err(|e| refused("the kernel's BTF", e))?;
    match wanted {
        Some(variant) => load_variant(variant, &btf, hidden),
        None if is_realtime_kernel() => load_variant(Variant::Tracepoint, &btf, hidden),
        None => load_variant(Variant::Fexit, &btf, hidden).or_else(|e| {
            tracing::debug!("ebpf: fexit is refused ({e:?}); using tracepoints");
            load_variant(Variant::Tracepoint, &btf, hidden)
        }),
    }
}

/// Asked before the kernel's BTF is parsed, which takes a while. In a user namespace of its own a
/// process seems to have every capability; then bpf(2) refuses.
fn may_load() -> bool {
    const SYS_ADMIN: u32 = 21;
    const PERFMON: u32 = 38;
    const BPF: u32 = 39;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let effective = line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok()).unwrap_or(u64::MAX);
    let has = |capability: u32| effective >> capability & 1 == 1;
    has(SYS_ADMIN) || (has(PERFMON) && has(BPF))
}

fn load_variant(variant: Variant, btf: &Btf, hidden: Option<&str>) -> Result<Loaded, MonitorError> {
    let kernel = Kernel(btf);
    let hooks = match variant {
        Variant::Tracepoint => kernel.tracepoint_hooks(),
        Variant::Fexit => kernel.fexit_hooks().map_err(|f| refused("a kernel function", f))?,
    };
    let mut ebpf =
        EbpfLoader::new().btf(Some(btf)).load(OBJECT).map_err(|e| refused("bpf(2)", ReportAll(&e)))?;
    let mut links = Vec::new();
    for hook in hooks.iter().filter(|h| !is_hidden(h, hidden)) {
        links.push(attach(&mut ebpf, hook, btf)?);
    }
    Ok(Loaded {
        variant,
        links,
        maps: maps(&ebpf)?,
        find_mm: iterator(&mut ebpf, "find_mm", btf)?,
        forget: iterator(&mut ebpf, "forget", btf)?,
        hooks,
    })
}

/// `hidden` names programs, separated by commas.
fn is_hidden(hook: &Hook, hidden: Option<&str>) -> bool {
    hidden.is_some_and(|names| names.split(',').any(|name| name == hook.program))
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Program, MonitorError> {
    ebpf.program_mut(name).ok_or_else(|| refused("a program of the object", name))
}

fn attach(ebpf: &mut Ebpf, hook: &Hook, btf: &Btf) -> Result<PrivateFd, MonitorError> {
    let loading = |e: aya::programs::ProgramError| {
        refused("loading a BPF program", format!("{}: {}", hook.name(), ReportAll(&e)))
    };
    let program = program(ebpf, hook.program)?;
    match hook.place {
        Place::Tracepoint(at) => {
            <&mut BtfTracePoint>::try_from(&mut *program).map_err(loading)?.load(at, btf)
        }
        Place::Entry(at) => <&mut FEntry>::try_from(&mut *program).map_err(loading)?.load(at, btf),
        Place::Exit(at) => <&mut FExit>::try_from(&mut *program).map_err(loading)?.load(at, btf),
    }
    .map_err(loading)?;
    let fd = program.fd().map_err(loading)?;
    let link = bpf::attach_tracing(fd.as_fd())
        .map_err(|e| refused("attaching a BPF program", format!("{}: {e}", hook.name())))?;
    PrivateFd::new(link).ok_or_else(|| refused("a descriptor that no child inherits", "too many are open"))
}

fn iterator(ebpf: &mut Ebpf, name: &'static str, btf: &Btf) -> Result<OwnedFd, MonitorError> {
    let failed = |e: aya::programs::ProgramError| refused("a BPF iterator", ReportAll(&e));
    let iter: &mut Iter = program(ebpf, name)?.try_into().map_err(failed)?;
    iter.load("task", btf).map_err(failed)?;
    let fd = iter.fd().map_err(failed)?;
    fd.as_fd().try_clone_to_owned().map_err(|e| refused("dup", e))
}

fn maps(ebpf: &Ebpf) -> Result<Maps, MonitorError> {
    let fd = |name: &str| match ebpf.map(name) {
        Some(Map::ArrayOfMaps(m) | Map::HashMap(m) | Map::Array(m)) => copy_of(m),
        _ => Err(refused("a map of the object", name)),
    };
    Ok(Maps {
        status_of: fd("status_of")?,
        filter_of: fd("filter_of")?,
        ring_of: fd("ring_of")?,
        mms: fd("mms")?,
        request: fd("request")?,
    })
}

fn copy_of(map: &MapData) -> Result<OwnedFd, MonitorError> {
    map.fd().as_fd().try_clone_to_owned().map_err(|e| refused("dup", e))
}

/// An error with its causes, since aya keeps the system call's in the source.
struct ReportAll<'a>(&'a dyn std::error::Error);

impl Display for ReportAll<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(e) = cause {
            write!(f, ": {e}")?;
            cause = e.source();
        }
        Ok(())
    }
}
