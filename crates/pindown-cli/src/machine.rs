//! Facts about this machine.

/// The running kernel's release, e.g. `6.18.44`.
pub(crate) fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".into(), |s| s.trim().into())
}
