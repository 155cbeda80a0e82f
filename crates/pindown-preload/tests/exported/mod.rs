//! The dynamic symbols that a library defines.

use std::path::PathBuf;
use std::process::Command;

/// Sorted names, or why they cannot be told here.
pub(crate) fn by(library: &str) -> Result<Vec<String>, String> {
    let deps = std::env::current_exe().map_err(|e| e.to_string())?;
    let deps = deps.parent().ok_or("no folder")?;
    let near = [deps.join(library), deps.join("..").join(library)];
    let found: Option<&PathBuf> = near.iter().find(|p| p.exists());
    let path = found.ok_or(format!("{library} is not beside this test"))?;
    let nm = Command::new("nm").args(["-D", "--defined-only"]).arg(path).output();
    let nm = nm.map_err(|e| format!("nm: {e} (install binutils)"))?;
    let text = String::from_utf8_lossy(&nm.stdout);
    let mut names: Vec<_> =
        text.lines().filter_map(|l| Some(l.split_whitespace().nth(2)?.to_owned())).collect();
    names.sort();
    Ok(names)
}

pub(crate) fn are_only(library: &str, expected: &[&str]) {
    match by(library) {
        Ok(names) => assert_eq!(names, expected),
        Err(why) => println!("skipped: {why}"),
    }
}
