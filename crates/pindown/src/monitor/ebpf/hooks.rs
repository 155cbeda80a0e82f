//! Which programs are attached where, and by which variant.

use aya::Btf;
use aya_obj::btf::BtfKind;

/// How the kernel is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Variant {
    /// Programs on the functions that clear page-table entries: exact, for every kind of mapping.
    /// Needs BPF trampolines (`CONFIG_FUNCTION_TRACER`), which some kernels lack or refuse.
    Fexit,
    /// Raw tracepoints: exits of the process's own calls, and files that lose pages.
    Tracepoint,
}

impl Variant {
    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fexit => "fexit",
            Self::Tracepoint => "tracepoint",
        }
    }
}

/// Where a program goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tracepoint(&'static str),
    Entry(&'static str),
    Exit(&'static str),
}

/// One program and its place. `number` is its index in the status page's counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hook {
    pub(crate) program: &'static str,
    pub(crate) place: Place,
    pub(crate) number: usize,
}

impl Hook {
    /// As people write it, e.g. `fexit:unmap_page_range`.
    pub(crate) fn name(&self) -> String {
        match self.place {
            Place::Tracepoint(at) => format!("tracepoint:{at}"),
            Place::Entry(at) => format!("fentry:{at}"),
            Place::Exit(at) => format!("fexit:{at}"),
        }
    }
}

/// The programs' numbers (`enum hook` of bpf/state.h).
pub(crate) mod number {
    pub(crate) const SYS_EXIT: usize = 0;
    pub(crate) const PAGE_CACHE: usize = 1;
    pub(crate) const URING: usize = 2;
    pub(crate) const ZAP: usize = 3;
    pub(crate) const HUGETLB: usize = 4;
    pub(crate) const MOVE: usize = 5;
    pub(crate) const PROTECT: usize = 6;
    pub(crate) const RMAP: usize = 7;
    pub(crate) const RMAP_PMD: usize = 8;
    pub(crate) const FLUSH: usize = 9;
    /// Counts nothing: it ends a client's enrolment.
    pub(crate) const NONE: usize = 15;
}

const fn at(program: &'static str, place: Place, number: usize) -> Hook {
    Hook { program, place, number }
}

const EXIT_MMAP: Hook = at("exit_mmap", Place::Tracepoint("exit_mmap"), number::NONE);
const SYS_EXIT: Hook = at("sys_exit", Place::Tracepoint("sys_exit"), number::SYS_EXIT);

/// What this kernel has, by its BTF.
#[derive(Debug)]
pub(crate) struct Kernel<'a>(pub(crate) &'a Btf);

impl Kernel<'_> {
    fn has(&self, name: &str, kind: BtfKind) -> bool {
        self.0.id_by_type_name_kind(name, kind).is_ok()
    }

    fn function(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|n| self.has(n, BtfKind::Func))
    }

    /// The tracepoint variant: nothing in it can be skipped, since raw tracepoints run with
    /// preemption off.
    pub(crate) fn tracepoint_hooks(&self) -> Vec<Hook> {
        let cache = "mm_filemap_delete_from_page_cache";
        let mut hooks =
            vec![EXIT_MMAP, SYS_EXIT, at("page_cache", Place::Tracepoint(cache), number::PAGE_CACHE)];
        let uring = "io_uring_queue_async_work";
        if self.has(&format!("btf_trace_{uring}"), BtfKind::Typedef) {
            hooks.push(at("uring_work", Place::Tracepoint(uring), number::URING));
        }
        hooks
    }

    /// The fexit variant; `Err` names the function that is missing.
    pub(crate) fn fexit_hooks(&self) -> Result<Vec<Hook>, &'static str> {
        let zap = self.function(&["__zap_vma_range", "unmap_page_range"]);
        let zap = zap.ok_or("__zap_vma_range or unmap_page_range")?;
        let mut hooks = vec![
            EXIT_MMAP,
            at("zap", Place::Exit(zap), number::ZAP),
            at(self.move_program(), Place::Exit("move_page_tables"), number::MOVE),
            at("flush", Place::Entry("flush_tlb_func"), number::FLUSH),
        ];
        hooks.extend(self.rmap_hooks()?);
        if self.function(&["__unmap_hugepage_range"]).is_some() {
            hooks.push(at("hugetlb", Place::Exit("__unmap_hugepage_range"), number::HUGETLB));
        }
        if self.function(&["change_protection"]).is_some() {
            hooks.push(at("protect", Place::Exit("change_protection"), number::PROTECT));
        }
        if flushes_are_broadcast() {
            hooks.push(SYS_EXIT); // flush_tlb_func is not called for such address spaces
        }
        Ok(hooks)
    }

    fn move_program(&self) -> &'static str {
        match self.has("pagetable_move_control", BtfKind::Struct) {
            true => "move_control",
            false => "move_args",
        }
    }

    fn rmap_hooks(&self) -> Result<Vec<Hook>, &'static str> {
        let (ptes, pmd, old) = ("folio_remove_rmap_ptes", "folio_remove_rmap_pmd", "page_remove_rmap");
        if self.function(&[ptes]).is_some() && self.function(&[pmd]).is_some() {
            return Ok(vec![
                at("rmap", Place::Entry(ptes), number::RMAP),
                at("rmap_pmd", Place::Entry(pmd), number::RMAP_PMD),
            ]);
        }
        let found = self.function(&[old]).ok_or("folio_remove_rmap_ptes or page_remove_rmap")?;
        Ok(vec![at("rmap_page", Place::Entry(found), number::RMAP)])
    }
}

/// AMD's INVLPGB (Linux 6.15): remote TLBs are flushed without an interrupt.
fn flushes_are_broadcast() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|s| s.contains(" invlpgb"))
}

/// PREEMPT_RT: the page-table lock sleeps, so the rmap programs can be skipped like the others.
pub(crate) fn is_realtime_kernel() -> bool {
    std::fs::read_to_string("/sys/kernel/realtime").is_ok_and(|s| s.trim() == "1")
}
