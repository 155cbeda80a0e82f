//! Steps that try to break the library: fuzzing, sanitizers, other allocators; and what must not be in it.

use super::host::status;
use super::report::Verdict;
use super::steps::Sanitizer;
use crate::error::Result;
use crate::{cargo, fuzz, proc, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";

pub(super) fn fuzz(seconds: u32) -> Result<Verdict> {
    if let Some(missing) = fuzz::missing() {
        return Ok(Verdict::Skipped(missing.to_string()));
    }
    status(cargo::command(&["xtask", "fuzz", "--seconds", &seconds.to_string()]))
}

/// The standard library is not rebuilt: its source is no part of a toolchain. AddressSanitizer does without;
/// ThreadSanitizer needs locks that it can follow (`--cfg tsan`) and the list of what it then still gets wrong.
pub(super) fn sanitized(sanitizer: Sanitizer, args: &[&str]) -> Result<Verdict> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        return Ok(Verdict::Skipped(format!("sanitizers are tried on {TARGET}")));
    }
    let (name, cfg) = match sanitizer {
        Sanitizer::Address => ("address", ""),
        Sanitizer::Thread => ("thread", "--cfg tsan "),
    };
    let suppressions = workspace::root().join("xtask/tsan.supp");
    let mut c = cargo::command(&[args, &["--target", TARGET, "--", "--nocapture"]].concat());
    c.env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", format!("{cfg}-Zsanitizer={name} -Cunsafe-allow-abi-mismatch=sanitizer"))
        .env("CARGO_TARGET_DIR", workspace::target().join(name))
        .env("TSAN_OPTIONS", format!("halt_on_error=1:suppressions={}", suppressions.display()))
        .env("PINDOWN_STRESS_SECONDS", "30");
    status(c)
}

pub(super) fn storm(library: Option<&str>, seconds: u32) -> Result<Verdict> {
    let tests = cargo::build_tests(&["test", "-p", "pindown", "--test", "malloc_storm"])?;
    let Some(test) = tests.first() else { return Ok(Verdict::Failed("the test was not built".into())) };
    let mut c = Command::new(test);
    c.arg("--nocapture").env("PINDOWN_STORM_SECONDS", seconds.to_string());
    if let Some(library) = library {
        let Some(path) = find_library(library) else {
            return Ok(Verdict::Skipped(format!("{library} is not installed")));
        };
        c.env("LD_PRELOAD", path).env("PINDOWN_STORM_ALLOCATOR", library);
    }
    status(c)
}

fn find_library(name: &str) -> Option<PathBuf> {
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    places.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists())
}

/// Parts of names of functions that only tests and models call.
const HOOKS: &[&str] =
    &["start_without", "fuzzing", "loom", "shuttle", "proptest", "tests_faults", "test_memory", "oracle"];

pub(super) fn release_hooks() -> Result<Verdict> {
    let binary = cargo::build_pindown(true)?;
    let symbols = proc::output(Command::new("nm").arg("--demangle").arg(&binary))?;
    let ours = |line: &&str| line.contains("pindown");
    if !symbols.lines().any(|line| line.contains("pindown_core::")) {
        return Ok(Verdict::Failed(format!("{} has no symbols to look at", binary.display())));
    }
    let names = symbols.lines().filter(ours).filter(|line| !line.contains("pindown::coherence"));
    let found: Vec<&str> = names.filter(|line| HOOKS.iter().any(|hook| line.contains(hook))).collect();
    Ok(match found.first() {
        None => Verdict::Passed,
        Some(first) => Verdict::Failed(format!("{} symbols of test code, the first: {first}", found.len())),
    })
}
