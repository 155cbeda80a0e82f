//! Paths of this workspace.

use std::path::{Path, PathBuf};

/// The root of the checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Cargo's target directory.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |dir| std::env::current_dir().unwrap_or_default().join(dir))
}

/// The lab's caches and work directories.
pub(crate) fn lab() -> PathBuf {
    std::env::var_os("PINDOWN_LAB").map_or_else(|| target().join("lab"), PathBuf::from)
}
