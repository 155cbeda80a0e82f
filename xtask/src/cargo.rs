//! Building with the cargo that runs us.

use crate::error::{Error, Result};
use crate::{proc, workspace};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// `cargo ARGS` in the workspace.
pub(crate) fn command(args: &[&str]) -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut c = Command::new(cargo);
    c.args(args).current_dir(workspace::root());
    c
}

/// Builds the command line tool and returns its path.
pub(crate) fn build_pindown(release: bool) -> Result<PathBuf> {
    let profile = if release { "release" } else { "dev" };
    output(&["build", "-p", "pindown-cli", "--all-features", "--profile", profile])?;
    let dir = if release { "release" } else { "debug" };
    Ok(workspace::target().join(dir).join("pindown"))
}

/// Builds `examples-verbs`' NAME, which is not of the workspace, and returns its path.
pub(crate) fn build_verbs_example(name: &str) -> Result<PathBuf> {
    let feature = name.trim_end_matches("_write");
    let dir = workspace::target().join("examples-verbs");
    let mut c = command(&["build", "--locked", "--manifest-path", "examples-verbs/Cargo.toml"]);
    c.args(["--no-default-features", "--features", feature, "--bin", name]).env("CARGO_TARGET_DIR", &dir);
    let described = proc::describe(&c);
    let status = c.status().map_err(|e| proc::spawn_error(&described, &e))?;
    if status.success() {
        return Ok(dir.join("debug").join(name));
    }
    Err(Error::Command { command: described, status: status.to_string(), output: String::new() })
}

/// `cargo build ARGS`.
pub(crate) fn build(args: &[&str]) -> Result<()> {
    output(&[&["build"], args].concat()).map(drop)
}

/// Builds the shared library of `package` and returns its path.
pub(crate) fn build_library(package: &str, release: bool) -> Result<PathBuf> {
    let profile = if release { "release" } else { "dev" };
    let messages = output(&["build", "-p", package, "--profile", profile, "--message-format=json"])?;
    let mut parsed = messages.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    let last = parsed.rfind(|m| m["target"]["crate_types"][0] == "cdylib");
    let files = last.iter().flat_map(|m| m["filenames"].as_array()).flatten().filter_map(|f| f.as_str());
    let path = files.filter(|f| f.ends_with(".so")).map(PathBuf::from).next();
    path.ok_or_else(|| Error::Other(format!("cargo built no shared library for {package}")))
}

/// Builds what `cargo ARGS` would test and returns the binaries' paths.
pub(crate) fn build_tests(args: &[&str]) -> Result<Vec<PathBuf>> {
    let messages = output(&[args, &["--no-run", "--message-format=json"]].concat())?;
    let parsed = messages.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    let tests = parsed.filter(|m| m["profile"]["test"] == true);
    Ok(tests.filter_map(|m| Some(m["executable"].as_str()?.into())).collect())
}

/// Runs cargo, its progress on our stderr, and returns its stdout.
fn output(args: &[&str]) -> Result<String> {
    let mut c = command(args);
    let name = proc::describe(&c);
    let out = c.stderr(Stdio::inherit()).output();
    let out = out.map_err(|e| proc::spawn_error(&name, &e))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    Err(Error::Command { command: name, status: out.status.to_string(), output: String::new() })
}
