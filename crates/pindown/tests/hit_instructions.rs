//! The number of instructions of a hit (get and put), counted by callgrind: a regression check that
//! does not depend on the machine's speed. Ignored by default, since it builds for release and needs
//! valgrind: `cargo test -p pindown --test hit_instructions -- --ignored`.

use std::process::Command;

/// Get and put of `examples/hit_loop`, with its loop; x86-64, release profile. Lower it when the
/// path gets shorter.
const MOST: u64 = 78;

fn built() -> std::path::PathBuf {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let build = ["build", "--release", "-p", "pindown", "--no-default-features", "--example", "hit_loop"];
    let output = Command::new(cargo).args(build).arg("--message-format=json").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).unwrap();
    let (_, rest) = messages.rsplit_once("\"executable\":\"").expect("the example is built");
    rest.split('"').next().unwrap().into()
}

fn instructions(example: &std::path::Path, hits: u64) -> u64 {
    let out = std::env::temp_dir().join(format!("hit-loop-{}-{hits}", std::process::id()));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", &format!("--callgrind-out-file={}", out.display())])
        .arg(example)
        .arg(hits.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let _ = std::fs::remove_file(out);
    let (_, count) = said.rsplit_once("Collected : ").unwrap_or_else(|| panic!("{said}"));
    count.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "builds for release, needs valgrind"]
fn a_hit_takes_no_more_instructions_than_it_did() {
    if !cfg!(target_arch = "x86_64") || Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: needs valgrind on x86-64");
        return;
    }
    let example = built();
    let (few, many) = (instructions(&example, 10_000), instructions(&example, 30_000));
    let each = (many - few) / 20_000;
    println!("{each} instructions a hit");
    assert!(each <= MOST, "{each} instructions a hit, {MOST} committed");
}
