//! The man pages that packages install.

use std::fs;
use std::process::Command;

#[test]
fn each_verb_has_a_page_and_hidden_ones_have_none() {
    let directory = std::env::temp_dir().join(format!("pindown-man-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let pindown = env!("CARGO_BIN_EXE_pindown");
    let written = Command::new(pindown).arg("__man").arg(&directory).status().unwrap();
    let help = Command::new(pindown).arg("--help").output().unwrap();
    let mut pages: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    let overview = fs::read_to_string(directory.join("pindown.1")).unwrap_or_default();
    fs::remove_dir_all(&directory).unwrap();
    assert!(written.success());
    pages.sort();
    assert!(pages.iter().all(|page| !page.contains("__")), "{pages:?}");
    for verb in ["coherence", "doctor", "perf", "top"] {
        let page = format!("pindown-{verb}.1");
        assert!(pages.contains(&page), "{page} in {pages:?}");
        assert!(String::from_utf8_lossy(&help.stdout).contains(verb) && overview.contains(verb));
    }
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let status =
        Command::new(env!("CARGO_BIN_EXE_pindown")).args(["__man", "/nonexistent/here"]).output().unwrap();
    assert!(!status.status.success());
    assert!(String::from_utf8_lossy(&status.stderr).contains("/nonexistent/here"));
}
