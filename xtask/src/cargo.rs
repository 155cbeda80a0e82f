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

/// Builds the shared library of `package` and returns its path.
pub(crate) fn build_library(package: &str, release: bool) -> Result<PathBuf> {
    let profile = if release { "release" } else { "dev" };
    let messages = output(&["build", "-p", package, "--profile", profile, "--message-format=json"])?;
    let parsed = messages.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    let last = parsed.rev().find(|m| m["target"]["crate_types"][0] == "cdylib");
    let path = last.and_then(|m| Some(m["filenames"][0].as_str()?.into()));
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
