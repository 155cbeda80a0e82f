//! Compiles the shim against the installed headers.

fn main() {
    println!("cargo:rerun-if-changed=src/shim.c");
    let mut shim = cc::Build::new();
    shim.file("src/shim.c").opt_level(2).warnings(false);
    if has_merge() {
        shim.define("PINDOWN_UCX_MERGE", None);
    }
    shim.compile("shim");
    println!("cargo:rustc-link-lib=ucs");
    println!("cargo:rustc-link-lib=ucm");
}

/// Whether the header is that of UCX 1.16 or later, whose requests say their alignment.
fn has_merge() -> bool {
    let header = std::fs::read_to_string("/usr/include/ucs/memory/rcache.h").unwrap_or_default();
    header.contains("ucs_rcache_set_default_params")
}
