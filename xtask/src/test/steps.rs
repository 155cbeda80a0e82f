//! The table of what `cargo xtask test` runs. To add a test, add a row here.

use crate::lab::{Guest, Kernel};

/// A step on this machine's own kernel.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// Only with `--full`.
    pub(crate) full: bool,
    pub(crate) run: Run,
}

/// Who runs a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// Skipped where we are not root.
    Root,
    /// uid 65534; ourselves where we are not root.
    Plain,
}

pub(crate) enum Run {
    /// `cargo ARGS`.
    Cargo(&'static [&'static str]),
    /// `cargo ARGS` with `--cfg loom`, in a target directory of its own.
    Loom(&'static [&'static str]),
    /// The same with `--cfg shuttle`.
    Shuttle(&'static [&'static str]),
    /// `cargo ARGS` with PINDOWN_LONG set: tests take their full length.
    Long(&'static [&'static str]),
    /// `cargo ARGS`, whose tests boot guests.
    Boots(&'static [&'static str]),
    /// The test binaries that `cargo ARGS --no-run` builds, run by a plain user.
    TestsAsPlainUser(&'static [&'static str]),
    /// `cargo xtask fuzz`, so many seconds a target.
    Fuzz(u32),
    /// The stress tests of `cargo ARGS`, built with a sanitizer.
    Sanitized(Sanitizer, &'static [&'static str]),
    /// malloc storms for so many seconds, with the allocator of this library preloaded if one is named.
    Storm(Option<&'static str>, u32),
    /// What is only for tests is not in the release binary.
    ReleaseHooks,
    /// `pindown ARGS`; its exit status 3 ("this machine cannot") is a skip.
    Pindown(User, &'static [&'static str]),
    /// The C library, installed into a prefix, and its tests in C.
    CLibrary,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sanitizer {
    Address,
    Thread,
}

const fn full(name: &'static str, run: Run) -> Step {
    Step { name, full: true, run }
}

const fn always(name: &'static str, run: Run) -> Step {
    Step { name, full: false, run }
}

const HIT_INSTRUCTIONS: &[&str] =
    &["test", "-p", "pindown", "--test", "hit_instructions", "--", "--ignored", "--nocapture"];

const STRESS: &[&str] = &["test", "-p", "pindown", "--no-default-features", "--test", "stress"];

pub(crate) const STEPS: &[Step] = &[
    always("workspace", Run::Cargo(&["test", "--workspace", "--all-features"])),
    always("workspace-plain-user", Run::TestsAsPlainUser(&["test", "--workspace", "--all-features"])),
    always("loom", Run::Loom(&["test", "-p", "pindown-core", "--release", "--lib", "loom_models"])),
    always("shuttle", Run::Shuttle(&["test", "-p", "pindown", "--lib", "queue::model"])),
    always("fuzz", Run::Fuzz(60)),
    full("stress-asan", Run::Sanitized(Sanitizer::Address, STRESS)),
    full("stress-tsan", Run::Sanitized(Sanitizer::Thread, STRESS)),
    full("malloc-storm-glibc", Run::Storm(None, 60)),
    full("malloc-storm-jemalloc", Run::Storm(Some("libjemalloc.so.2"), 60)),
    full("malloc-storm-mimalloc", Run::Storm(Some("libmimalloc.so.2"), 60)),
    full("release-hooks", Run::ReleaseHooks),
    full("forks-1000", Run::Long(&["test", "-p", "pindown", "--test", "forks"])),
    full("kills-300", Run::Long(&["test", "-p", "pindown", "--test", "kills"])),
    always("hit-instructions", Run::Cargo(HIT_INSTRUCTIONS)),
    Step { name: "queue-million", full: true, run: Run::Long(&["test", "-p", "pindown", "--test", "queue"]) },
    always("coherence-root", Run::Pindown(User::Root, &["coherence", "--monitor", "uffd"])),
    always("coherence-plain-user", Run::Pindown(User::Plain, &["coherence", "--monitor", "uffd"])),
    Step {
        name: "policies-all-budgets",
        full: true,
        run: Run::Long(&["test", "--release", "-p", "pindown-replay", "--test", "policies"]),
    },
    Step {
        name: "budget-million",
        full: true,
        run: Run::Long(&["test", "--release", "-p", "pindown", "--test", "budget"]),
    },
    always("coherence-ebpf", Run::Pindown(User::Root, &["coherence", "--monitor", "ebpf"])),
    Step {
        name: "coherence-ebpf-own-programs",
        full: true,
        run: Run::Pindown(User::Root, &["coherence", "--monitor", "ebpf", "--own-programs"]),
    },
    Step {
        name: "ebpf-million",
        full: true,
        run: Run::Long(&["test", "-p", "pindown", "--features", "ebpf", "--lib", "monitor::ebpf"]),
    },
    Step { name: "coherence-all-monitors", full: true, run: Run::Pindown(User::Root, &["coherence"]) },
    always("soak-root", Run::Pindown(User::Root, &["soak", "--seconds", "10"])),
    always("soak-plain-user", Run::Pindown(User::Plain, &["soak", "--seconds", "10"])),
    always("c-library", Run::CLibrary),
    always("lab", Run::Boots(&["test", "-p", "xtask", "--test", "vm", "--", "--ignored"])),
];

/// A boot with several commands in it.
pub(crate) struct GuestStep {
    /// With the kernel's name, the name of the step.
    pub(crate) label: &'static str,
    pub(crate) kernel: Kernel,
    pub(crate) guest: Guest,
    pub(crate) full: bool,
    pub(crate) timeout_s: u64,
    pub(crate) rows: Vec<Row>,
}

/// One command in a guest.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// A script; `pindown` and what is carried are on its PATH.
    pub(crate) script: &'static str,
    /// What to carry: test targets as PACKAGE:NAME, shared libraries as lib:PACKAGE, the C library's examples as
    /// c:NAME, files by their path in the workspace.
    pub(crate) carry: &'static [&'static str],
}

impl GuestStep {
    pub(crate) fn name(&self) -> String {
        format!("{}-{}", self.kernel.name(), self.label)
    }
}

const fn row(name: &'static str, script: &'static str, carry: &'static [&'static str]) -> Row {
    Row { name, script, carry }
}

/// On every kernel, with one soft-RoCE device.
const BASE: &[Row] = &[
    row(
        "soft-roce",
        "ibv_rc_pingpong -d rxe0 -g 1 -c & sleep 1; ibv_rc_pingpong -d rxe0 -g 1 -c localhost",
        &[],
    ),
    // Linux 7.3 counts pinned pages (VmPin) without CAP_IPC_LOCK alone: the skipped test is the plain user's.
    row(
        "io-uring",
        "io_uring_provider --skip long_ranges_are_like_short_ones",
        &["pindown:io_uring_provider"],
    ),
    row(
        "io-uring-plain-user",
        "setpriv --reuid 65534 --regid 65534 --clear-groups io_uring_provider long_ranges",
        &["pindown:io_uring_provider"],
    ),
    row(
        "queue",
        "queue && queue_large && queue_prefetch && queue_fork && everything",
        &[
            "pindown:queue",
            "pindown:queue_large",
            "pindown:queue_prefetch",
            "pindown:queue_fork",
            "pindown:everything",
        ],
    ),
    // And nothing is left in the kernel after exit.
    row(
        "verbs-device",
        "verbs_device --test-threads 1 --nocapture && ! rdma resource show mr | grep .",
        &["pindown:verbs_device"],
    ),
    row("verbs-exposure", "verbs_exposure", &["pindown:verbs_exposure"]),
    row("verbs-queue", "verbs_queue", &["pindown:verbs_queue"]),
    row("verbs-readme", "verbs_readme first_cached_write", &["pindown:verbs_readme"]),
    row("verbs-doctor", "pindown doctor | grep -A 12 'verbs device rxe0'", &[]),
    row("verbs-perf", "pindown perf --provider verbs --size 64K --churn remap --ops 64", &[]),
    row(
        "c-library",
        "[ -x ./c_verbs_write ] || { echo 'skipped: not compiled'; exit 3; }
         c_io_uring_write && c_verbs_write rxe0 1",
        &["c:verbs_write", "c:io_uring_write"],
    ),
    row("coherence-uffd", "pindown coherence --monitor uffd --mapping anon-private", &[]),
    row("coherence-verbs", "pindown coherence --provider verbs --monitor uffd --mapping anon-private", &[]),
    row(
        "coherence-verbs-ebpf",
        "pindown coherence --provider verbs --monitor ebpf --mapping anon-private --event munmap",
        &[],
    ),
    row("coherence-odp", "pindown coherence --provider verbs --monitor odp --mapping anon-private", &[]),
    row("coherence-ebpf", "pindown coherence --monitor ebpf --mapping anon-private", &[]),
    // What is left behind at exit goes with the process. userfaultfd starts faster, and is not there before 6.7.
    row(
        "verbs-preload",
        "case $(uname -r) in 6.1.*) ;; *) export PINDOWN_MONITOR=uffd ;; esac
         LD_PRELOAD=/job/libpindown_verbs.so verbs_preload --test-threads 1 &&
         test -z \"$(rdma resource show mr)\"",
        &["lib:pindown-preload-verbs", "pindown-preload-verbs:verbs_preload"],
    ),
    // The last: it takes the device away.
    row(
        "verbs-unplug",
        "PINDOWN_UNPLUG='ip link delete d0' verbs_device --ignored",
        &["pindown:verbs_device"],
    ),
];

/// The whole proof: some 800 rows a monitor, half a second each under emulation.
const MATRIX: &[Row] = &[
    row("uffd", "pindown coherence --monitor uffd", &[]),
    row("verbs", "pindown coherence --provider verbs --monitor uffd", &[]),
    row("verbs-ebpf", "pindown coherence --provider verbs --monitor ebpf", &[]),
    row("odp", "pindown coherence --provider verbs --monitor odp", &[]),
    row("ebpf", "pindown coherence --monitor ebpf", &[]),
];

/// The eBPF monitor's own tests where fexit programs are taken, each preemption model that the kernel can
/// be switched to (debugfs; it stays as it is where it cannot).
const EBPF: &[Row] = &[
    row(
        "hooks",
        "echo 8 >/proc/sys/vm/nr_hugepages
         PINDOWN_TEST_SCALE=10 lib --test-threads 1 monitor::ebpf watch::",
        &["pindown:lib"],
    ),
    row("helper", "pindown --version && helper --test-threads 1", &["pindown-cli:helper"]),
    row(
        "skip-lazy",
        "echo lazy >/sys/kernel/debug/sched/preempt
         PINDOWN_SKIP_UNMAPS=100000 PINDOWN_SKIP_SECONDS=1500 PINDOWN_SKIP_MUST_MISS=1 ebpf_skip --nocapture",
        &["pindown:ebpf_skip"],
    ),
    row(
        "skip-full",
        "echo full >/sys/kernel/debug/sched/preempt
         PINDOWN_SKIP_UNMAPS=100000 PINDOWN_SKIP_SECONDS=1500 PINDOWN_SKIP_MUST_MISS=1 ebpf_skip --nocapture",
        &["pindown:ebpf_skip"],
    ),
];

/// What prefetch moves out of the first transfer: 32 MiB take minutes under emulation.
const COLD: &[Row] = &[
    row("on-demand", "prefetch_cold --nocapture on_demand", &["pindown:prefetch_cold"]),
    row("pinned", "prefetch_cold --nocapture --test-threads 1 --skip on_demand", &["pindown:prefetch_cold"]),
];

const TWO_HOSTS: &[Row] = &[
    row(
        "pingpong",
        "ip netns exec host1 ibv_rc_pingpong -d rxe1 -g 1 -c & sleep 1
         ip netns exec host0 ibv_rc_pingpong -d rxe0 -g 1 -c host1",
        &[],
    ),
    row(
        "write-bw",
        "ip netns exec host1 ib_write_bw -d rxe1 -x 1 -s 65536 -n 100 & sleep 1
         ip netns exec host0 ib_write_bw -d rxe0 -x 1 -s 65536 -n 100 host1",
        &[],
    ),
    row(
        "verbs-exposure",
        "PINDOWN_VERBS_DEVICE=rxe0 PINDOWN_VERBS_PEER=rxe1 verbs_exposure",
        &["pindown:verbs_exposure"],
    ),
    row(
        "perf",
        "ip netns exec host1 pindown perf --provider verbs --device rxe1 --listen & sleep 1
         ip netns exec host0 pindown perf --provider verbs --device rxe0 --connect host1 --size 64K --churn remap --ops 32",
        &[],
    ),
    row(
        "perf-odp",
        "ip netns exec host1 pindown perf --provider verbs --device rxe1 --monitor odp --listen >/dev/null & sleep 1
         ip netns exec host0 pindown perf --provider verbs --device rxe0 --monitor odp --connect host1 \
           --size 64K --churn remap --ops 32",
        &[],
    ),
    // 256 MiB each way by WRITE and by READ in each mode.
    row(
        "perf-256-mib",
        "ip netns exec host1 pindown perf --provider verbs --device rxe1 --listen >/dev/null & sleep 1
         ip netns exec host0 pindown perf --provider verbs --device rxe0 --connect host1 --size 1M --churn remap \
           --op write --op read --ops 256",
        &[],
    ),
];

/// Programs on the verbs crates, with pindown's registrations.
const VERBS_CRATES: &[Row] = &[
    row(
        "sideway",
        "[ -x /job/sideway_write ] || exit 3; sideway_write rxe0",
        &["examples-verbs/sideway_write"],
    ),
    row(
        "ibverbs",
        "[ -x /job/ibverbs_write ] || exit 3; ibverbs_write rxe0",
        &["examples-verbs/ibverbs_write"],
    ),
];

/// Existing engines over soft-RoCE, their data checked.
const ENGINES: &[Row] = &[
    row(
        "ucx",
        "export UCX_NET_DEVICES=rxe0:1 UCX_TLS=rc_verbs,ud_verbs,self UCX_IB_GID_INDEX=0
         export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
         mpirun.openmpi -n 2 --oversubscribe ucx_perftest -t tag_lat -s 65536 -n 100 -w 10",
        &[],
    ),
    row(
        "libfabric-msg",
        "fi_pingpong -p verbs -e msg -c -I 5 & sleep 2; fi_pingpong -p verbs -e msg -c -I 5 10.9.0.1",
        &[],
    ),
    row(
        "libfabric-rdm",
        "export FI_UNIVERSE_SIZE=16; fi_pingpong -p 'verbs;ofi_rxm' -e rdm -c -I 5 & sleep 2
         fi_pingpong -p 'verbs;ofi_rxm' -e rdm -c -I 5 10.9.0.1",
        &[],
    ),
    row(
        "open-mpi",
        "export UCX_NET_DEVICES=rxe0:1 UCX_TLS=rc_verbs,ud_verbs,self UCX_IB_GID_INDEX=0
         export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
         mpirun.openmpi -n 2 --oversubscribe --mca pml ucx python3 mpi_pingpong.py libmpi.so.40",
        &["xtask/lab/mpi_pingpong.py"],
    ),
    row(
        "mpich",
        "export UCX_NET_DEVICES=rxe0:1 UCX_TLS=rc_verbs,ud_verbs,self UCX_IB_GID_INDEX=0
         mpirun.mpich -n 2 python3 mpi_pingpong.py libmpich.so.12",
        &["xtask/lab/mpi_pingpong.py"],
    ),
];

/// pindown under engines and programs that do not know of it.
const PRELOADS: &[Row] = &[
    row(
        "verbs",
        "export PINDOWN_SUMMARY=1 LD_PRELOAD=/job/libpindown_verbs.so
         for monitor in ebpf uffd; do
           PINDOWN_MONITOR=$monitor verbs_preload --include-ignored --skip leaves_everything --nocapture --test-threads 1 || exit
         done
         unset LD_PRELOAD; test -z \"$(rdma resource show mr)\"",
        &["lib:pindown-preload-verbs", "pindown-preload-verbs:verbs_preload"],
    ),
    row(
        "verbs-perftest",
        "export PINDOWN_SUMMARY=1
         for test in ib_write_bw ib_read_bw ib_send_bw; do
           LD_PRELOAD=/job/libpindown_verbs.so $test -d rxe0 -x 1 -s 65536 -n 100 & sleep 2
           LD_PRELOAD=/job/libpindown_verbs.so $test -d rxe0 -x 1 -s 65536 -n 100 10.9.0.1 && wait $! || exit
         done
         test -z \"$(rdma resource show mr)\"",
        &["lib:pindown-preload-verbs"],
    ),
    row(
        "verbs-pyverbs",
        "python3 -c 'import pyverbs.device' ||
           { echo 'skipped: stable pyverbs does not load with the newer rdma-core of this guest'; exit 3; }
         LD_PRELOAD=/job/libpindown_verbs.so PINDOWN_SUMMARY=1 python3 pyverbs_remap.py rxe0 1",
        &["lib:pindown-preload-verbs", "xtask/lab/pyverbs_remap.py"],
    ),
    row(
        "verbs-jemalloc",
        "export LD_PRELOAD='libjemalloc.so.2 /job/libpindown_verbs.so'
         verbs_preload --skip leaves_everything --test-threads 1",
        &["lib:pindown-preload-verbs", "pindown-preload-verbs:verbs_preload"],
    ),
    row("mpi-ucx", "sh mpi_changes.sh open-mpi-ucx", MPI),
    row("mpi-ofi", "sh mpi_changes.sh open-mpi-ofi", MPI),
    row("mpi-mpich", "sh mpi_changes.sh mpich", MPI),
];

const MPI: &[&str] = &[
    "xtask/lab/mpi_changes.sh",
    "lib:pindown-preload-ucx",
    "lib:pindown-preload-fabric",
    "pindown-preload:mpi_changes",
];

/// The ends of threads and processes, under two kernels that userfaultfd can watch.
const PROCESSES: &[Row] = &[
    row("threads", "threads", &["pindown:threads"]),
    row("exits", "exits", &["pindown:exits"]),
    row("forks", "forks", &["pindown:forks"]),
    row("kills", "kills", &["pindown:kills"]),
    row("malloc-storm", "malloc_storm", &["pindown:malloc_storm"]),
];

/// The guests: one in every run, the others with `--full`.
pub(crate) fn guests() -> Vec<GuestStep> {
    let base = |kernel, full| step(kernel, Guest::Base, full, 480, BASE);
    let ebpf = |kernel| GuestStep { label: "ebpf", ..step(kernel, Guest::Base, true, 7200, EBPF) };
    let processes =
        |kernel| GuestStep { label: "processes", ..step(kernel, Guest::Base, true, 1800, PROCESSES) };
    let matrix = |kernel| GuestStep { label: "matrix", ..step(kernel, Guest::Base, true, 5400, MATRIX) };
    vec![
        base(Kernel::Backports, false),
        base(Kernel::Stable, true),
        base(Kernel::Oldstable, true),
        matrix(Kernel::Backports),
        matrix(Kernel::Stable),
        matrix(Kernel::Oldstable),
        ebpf(Kernel::Backports),
        ebpf(Kernel::Stable),
        processes(Kernel::Backports),
        processes(Kernel::Stable),
        GuestStep { label: "verbs-crates", ..step(Kernel::Backports, Guest::Base, true, 120, VERBS_CRATES) },
        step(Kernel::Backports, Guest::TwoHosts, true, 1800, TWO_HOSTS),
        GuestStep { label: "prefetch", ..step(Kernel::Backports, Guest::Base, true, 900, COLD) },
        step(Kernel::Backports, Guest::Engines, true, 480, ENGINES),
        GuestStep { label: "preloads", ..step(Kernel::Backports, Guest::Engines, true, 3600, PRELOADS) },
    ]
}

fn step(kernel: Kernel, guest: Guest, full: bool, timeout_s: u64, rows: &[Row]) -> GuestStep {
    GuestStep { label: guest.name(), kernel, guest, full, timeout_s, rows: rows.to_vec() }
}
