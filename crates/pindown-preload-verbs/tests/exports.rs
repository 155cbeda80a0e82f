//! The library exports what it stands in front of, and nothing else.

#[path = "../../pindown-preload/tests/exported/mod.rs"]
mod exported;

#[test]
fn only_what_it_is_for() {
    exported::are_only(
        "libpindown_verbs.so",
        &[
            "ibv_close_device",
            "ibv_dealloc_pd",
            "ibv_dereg_mr",
            "ibv_reg_mr",
            "ibv_reg_mr_iova2",
            "ibv_rereg_mr",
        ],
    );
}
