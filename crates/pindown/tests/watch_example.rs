//! The example of `pindown::watch`, run: alone in its process, since it counts what changes.
#![cfg(feature = "uffd")]
#![allow(missing_docs, unreachable_pub)]

#[path = "../examples/watch_cache.rs"]
mod watch_cache;

#[test]
fn a_ten_line_cache_is_never_stale() {
    match watch_cache::main() {
        Err(e) if e.to_string().starts_with("no monitor starts here") => println!("skipped: {e}"),
        other => other.unwrap(),
    }
}
