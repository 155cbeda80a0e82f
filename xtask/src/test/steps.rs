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
    /// `pindown ARGS`; its exit status 3 ("this machine cannot") is a skip.
    Pindown(User, &'static [&'static str]),
}

const fn always(name: &'static str, run: Run) -> Step {
    Step { name, full: false, run }
}

const HIT_INSTRUCTIONS: &[&str] =
    &["test", "-p", "pindown", "--test", "hit_instructions", "--", "--ignored", "--nocapture"];

pub(crate) const STEPS: &[Step] = &[
    always("workspace", Run::Cargo(&["test", "--workspace", "--all-features"])),
    always("workspace-plain-user", Run::TestsAsPlainUser(&["test", "--workspace", "--all-features"])),
    always("loom", Run::Loom(&["test", "-p", "pindown-core", "--release", "--lib", "loom_models"])),
    always("shuttle", Run::Shuttle(&["test", "-p", "pindown", "--lib", "queue::model"])),
    Step { name: "hit-instructions", full: true, run: Run::Cargo(HIT_INSTRUCTIONS) },
    Step { name: "queue-million", full: true, run: Run::Long(&["test", "-p", "pindown", "--test", "queue"]) },
    always("coherence-root", Run::Pindown(User::Root, &["coherence", "--monitor", "uffd"])),
    always("coherence-plain-user", Run::Pindown(User::Plain, &["coherence", "--monitor", "uffd"])),
    // Each cell loads the programs anew: the whole matrix takes a quarter of an hour.
    Step {
        name: "budget-million",
        full: true,
        run: Run::Long(&["test", "--release", "-p", "pindown", "--test", "budget"]),
    },
    always(
        "coherence-ebpf",
        Run::Pindown(User::Root, &["coherence", "--monitor", "ebpf", "--mapping", "anon-private"]),
    ),
    Step { name: "coherence-all-monitors", full: true, run: Run::Pindown(User::Root, &["coherence"]) },
    always("soak-root", Run::Pindown(User::Root, &["soak", "--seconds", "10"])),
    always("soak-plain-user", Run::Pindown(User::Plain, &["soak", "--seconds", "10"])),
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
    /// What to carry: test targets as PACKAGE:NAME, files by their path in the workspace.
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
        "queue && queue_prefetch && queue_fork && everything",
        &["pindown:queue", "pindown:queue_prefetch", "pindown:queue_fork", "pindown:everything"],
    ),
    row("verbs-device", "verbs_device --test-threads 1", &["pindown:verbs_device"]),
    row("verbs-exposure", "verbs_exposure", &["pindown:verbs_exposure"]),
    row("verbs-queue", "verbs_queue", &["pindown:verbs_queue"]),
    row("coherence-uffd", "pindown coherence --monitor uffd --mapping anon-private", &[]),
    row("coherence-verbs", "pindown coherence --provider verbs --monitor uffd --mapping anon-private", &[]),
    row("coherence-odp", "pindown coherence --provider verbs --monitor odp --mapping anon-private", &[]),
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
    row("odp", "pindown coherence --provider verbs --monitor odp", &[]),
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

/// The guests: one in every run, the others with `--full`.
pub(crate) fn guests() -> Vec<GuestStep> {
    let base = |kernel, full| step(kernel, Guest::Base, full, 480, BASE);
    let matrix = |kernel| GuestStep { label: "matrix", ..step(kernel, Guest::Base, true, 5400, MATRIX) };
    vec![
        base(Kernel::Backports, false),
        base(Kernel::Stable, true),
        base(Kernel::Oldstable, true),
        matrix(Kernel::Backports),
        matrix(Kernel::Stable),
        matrix(Kernel::Oldstable),
        step(Kernel::Backports, Guest::TwoHosts, true, 300, TWO_HOSTS),
        step(Kernel::Backports, Guest::Engines, true, 480, ENGINES),
    ]
}

fn step(kernel: Kernel, guest: Guest, full: bool, timeout_s: u64, rows: &[Row]) -> GuestStep {
    GuestStep { label: guest.name(), kernel, guest, full, timeout_s, rows: rows.to_vec() }
}
