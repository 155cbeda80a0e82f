//! The library exports what it stands in front of, and nothing else.

#[path = "../../pindown-preload/tests/exported/mod.rs"]
mod exported;

#[test]
fn only_what_it_is_for() {
    exported::are_only("libpindown_ucx.so", &["ucs_pgtable_lookup", "ucs_rcache_get"]);
}
