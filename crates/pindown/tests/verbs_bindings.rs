//! The committed verbs bindings are what their generator prints for the installed header.
#![cfg(all(feature = "verbs", target_arch = "x86_64"))]

use std::path::Path;
use std::process::Command;

#[test]
fn bindings_are_those_of_the_header() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        eprintln!("skipped: <infiniband/verbs.h> is not installed (libibverbs-dev)");
        return;
    }
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sys/verbs");
    let generator = std::env::temp_dir().join(format!("pindown-verbs-bindings-{}", std::process::id()));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let built = Command::new(&compiler)
        .args(["-Wall", "-Werror", "-o"])
        .arg(&generator)
        .arg(dir.join("bindings.c"))
        .status();
    match built {
        Err(e) => return eprintln!("skipped: no C compiler {compiler:?} ({e})"),
        Ok(status) => assert!(status.success(), "bindings.c does not compile"),
    }
    let printed = Command::new(&generator).output().expect("runs");
    let _ = std::fs::remove_file(&generator);
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let committed = std::fs::read(dir.join("bindings.rs")).expect("bindings.rs");
    assert!(
        printed.stdout == committed,
        "bindings.rs is not what bindings.c prints: regenerate it (see bindings.c)"
    );
}
