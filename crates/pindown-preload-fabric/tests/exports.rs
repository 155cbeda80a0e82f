//! The library exports what it stands in front of, and nothing else.

#[path = "../../pindown-preload/tests/exported/mod.rs"]
mod exported;

#[test]
fn only_what_it_is_for() {
    exported::are_only(
        "libpindown_fabric.so",
        &["fi_fabric", "fi_fabric2", "fi_open", "pindown_fabric_import"],
    );
}
