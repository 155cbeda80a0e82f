//! The facts, as JSON.

use pindown::probe::{self, Backend, Fact, LimitFact, Standing};
use pindown::{Cover, MappingKind};
use serde::Serialize;

use super::verbs;

/// The document.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) kernel: String,
    pub(crate) uid: u32,
    pub(crate) monitors: Vec<BackendRow>,
    pub(crate) providers: Vec<BackendRow>,
    pub(crate) verbs_devices: Vec<verbs::DeviceRow>,
    pub(crate) limits: Vec<LimitRow>,
    pub(crate) facilities: Vec<FactRow>,
    pub(crate) recommended: Recommended,
}

/// A monitor or provider.
#[derive(Debug, Serialize)]
pub(crate) struct BackendRow {
    pub(crate) name: &'static str,
    pub(crate) usable: bool,
    pub(crate) why: String,
    pub(crate) remedy: Option<String>,
    /// Of a monitor, by kind of mapping.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) coverage: Vec<CoverRow>,
    /// Events that make registrations stale unseen, which the program must not do to them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) waived: Vec<&'static str>,
}

/// How a monitor covers a kind of mapping.
#[derive(Debug, Serialize)]
pub(crate) struct CoverRow {
    pub(crate) mapping: &'static str,
    /// `full`, `waived`, `if` or `no`.
    pub(crate) cover: &'static str,
    pub(crate) note: String,
}

/// A limit.
#[derive(Debug, Serialize)]
pub(crate) struct LimitRow {
    pub(crate) name: &'static str,
    /// `null`: unlimited, or not known.
    pub(crate) value: Option<u64>,
    pub(crate) unit: &'static str,
    pub(crate) binds: bool,
    pub(crate) source: &'static str,
    pub(crate) remedy: &'static str,
}

/// Anything else that matters.
#[derive(Debug, Serialize)]
pub(crate) struct FactRow {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    #[serde(skip)]
    pub(crate) standing: Standing,
    #[serde(rename = "standing")]
    standing_name: String,
    pub(crate) source: &'static str,
    pub(crate) remedy: Option<&'static str>,
}

/// What `auto` takes.
#[derive(Debug, Serialize)]
pub(crate) struct Recommended {
    pub(crate) monitor: &'static str,
    /// `null` where none works.
    pub(crate) provider: Option<&'static str>,
}

impl Report {
    /// Asks the machine.
    pub(crate) fn new() -> Self {
        let recommended = probe::recommended();
        Self {
            kernel: probe::kernel_release(),
            uid: crate::sys::effective_uid(),
            monitors: probe::monitors().into_iter().map(backend).collect(),
            providers: probe::providers().into_iter().map(backend).collect(),
            verbs_devices: verbs::rows(),
            limits: probe::limits().into_iter().map(limit).collect(),
            facilities: probe::facilities().into_iter().map(fact).collect(),
            recommended: Recommended { monitor: recommended.monitor, provider: recommended.provider },
        }
    }
}

fn backend(backend: Backend) -> BackendRow {
    let waived = backend.waived();
    let rows = backend.coverage.map(|coverage| coverage.rows).unwrap_or_default();
    BackendRow {
        name: backend.name,
        usable: backend.usable,
        why: backend.why,
        remedy: backend.remedy,
        coverage: rows.into_iter().map(|(kind, how)| cover(kind, how)).collect(),
        waived,
    }
}

fn cover(kind: MappingKind, cover: Cover) -> CoverRow {
    let (cover, note) = match cover {
        Cover::Full => ("full", String::new()),
        Cover::Waived(events) => ("waived", format!("all but {}", events.join(", "))),
        Cover::If(condition) => ("if", condition.to_owned()),
        Cover::No(why) => ("no", why.to_owned()),
        _ => ("?", String::new()),
    };
    CoverRow { mapping: mapping_name(kind), cover, note }
}

fn mapping_name(kind: MappingKind) -> &'static str {
    match kind {
        MappingKind::Anonymous => "private anonymous, heap, stacks",
        MappingKind::SharedAnonymous => "shared anonymous, SysV",
        MappingKind::Shmem => "memfd and tmpfs, shared",
        MappingKind::Hugetlb => "huge pages",
        MappingKind::PrivateFile => "files, private",
        MappingKind::SharedFile => "files, shared",
        MappingKind::Special => "device and secret memory",
        _ => "other",
    }
}

fn limit(limit: LimitFact) -> LimitRow {
    let LimitFact { name, value, unit, binds, source, remedy, .. } = limit;
    LimitRow { name, value, unit, binds, source, remedy }
}

fn fact(fact: Fact) -> FactRow {
    let Fact { name, value, standing, source, remedy, .. } = fact;
    let standing_name = match standing {
        Standing::Good => "good",
        Standing::Restricted => "restricted",
        Standing::Missing => "missing",
        _ => "plain",
    };
    FactRow { name, value, standing, standing_name: standing_name.into(), source, remedy }
}
