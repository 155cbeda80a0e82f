//! Running other programs: output captured, failure as an error that shows what was said.

use crate::error::{Error, Result};
use std::process::{Command, Output, Stdio};

/// The program and its arguments on one line, shortened, for error messages.
pub(crate) fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let mut line = words.map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ");
    if line.chars().count() > 200 {
        line = line.chars().take(200).collect::<String>() + " ...";
    }
    line
}

/// Runs to the end without input; a status other than 0 is an error with the last lines of output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = describe(command);
    let out = command.stdin(Stdio::null()).output().map_err(|e| spawn_error(&name, &e))?;
    if !out.status.success() {
        return Err(Error::Command { command: name, status: out.status.to_string(), output: tail(&out) });
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

pub(crate) fn spawn_error(command: &str, e: &std::io::Error) -> Error {
    Error::Command { command: command.to_owned(), status: e.to_string(), output: String::new() }
}

fn tail(out: &Output) -> String {
    let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(8)..];
    if last.is_empty() {
        return String::new();
    }
    format!(":\n  {}", last.join("\n  "))
}

/// Where a program lies on PATH, or in the directories where a plain user's PATH omits it.
pub(crate) fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(name))
        .find(|p| p.is_file())
}
