//! Steps in a guest: all rows of one in a single boot, told apart by marker lines on stdout.

use super::host::CANNOT;
use super::report::{Report, Verdict};
use super::steps::{GuestStep, Row};
use crate::error::{At, Result};
use crate::lab::{Lab, quote};
use crate::{capi, cargo, proc, workspace};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const START: &str = "@@row-start ";
const END: &str = "@@row-end ";

pub(crate) fn run(step: &GuestStep, no_vm: bool, report: &mut Report) {
    let skip = if no_vm {
        Some("--no-vm".to_owned())
    } else {
        let lab = Lab::prepare(step.kernel, step.guest, false);
        lab.err().map(|e| format!("the lab cannot be prepared: {e}"))
    };
    let mut left: Vec<&Row> = step.rows.iter().collect();
    let why: Box<dyn Fn() -> Verdict> = match skip {
        Some(why) => Box::new(move || Verdict::Skipped(why.clone())),
        None => {
            let end = boot(step, &mut left, report).unwrap_or_else(|e| e.to_string());
            Box::new(move || Verdict::Failed(format!("the guest ended before this row did: {end}")))
        }
    };
    for row in left {
        report.add(&name(step, row), Duration::ZERO, why());
    }
}

fn name(step: &GuestStep, row: &Row) -> String {
    format!("{}/{}", step.name(), row.name)
}

/// Runs the rows, takes those with a verdict off `left`, and returns how the boot ended.
fn boot(step: &GuestStep, left: &mut Vec<&Row>, report: &mut Report) -> Result<String> {
    let mut c = vm(step)?;
    let described = proc::describe(&c);
    let mut child = c.stdout(Stdio::piped()).spawn().map_err(|e| proc::spawn_error(&described, &e))?;
    let mut start = Instant::now();
    for line in BufReader::new(child.stdout.take().expect("a pipe was asked for")).lines() {
        let line = line.at("read", Path::new("the guest's output"))?;
        if let Some(row) = line.strip_prefix(START) {
            start = Instant::now();
            eprintln!("--- {}/{row}", step.name());
            continue;
        }
        if let Some((row, code)) = ended(&line, left) {
            report.add(&name(step, row), start.elapsed(), verdict(code));
            left.retain(|r| r.name != row.name);
        } else {
            println!("{line}");
        }
    }
    Ok(child.wait().at("wait for", Path::new("the guest"))?.to_string())
}

/// The row and exit status of an end marker.
fn ended<'a>(line: &str, left: &[&'a Row]) -> Option<(&'a Row, i32)> {
    let (code, name) = line.strip_prefix(END)?.split_once(' ')?;
    let row = left.iter().find(|r| r.name == name)?;
    Some((row, code.parse().ok()?))
}

fn verdict(code: i32) -> Verdict {
    match code {
        0 => Verdict::Passed,
        CANNOT => Verdict::Skipped("this kernel cannot; it said why above".into()),
        124 => Verdict::Failed("time is up".into()),
        code => Verdict::Failed(format!("exit status {code}")),
    }
}

/// `xtask vm` with the rows as its script. As a process, so that a boot ends as it does for a person.
fn vm(step: &GuestStep) -> Result<Command> {
    // Not by its path: a build of a step before may have replaced the file.
    let this = format!("/proc/{}/exe", std::process::id());
    let mut c = Command::new("setpriv");
    c.args(["--pdeathsig", "TERM", &this]);
    c.args(["vm", "--kernel", step.kernel.name(), "--guest", step.guest.name()]);
    c.args(["--timeout", &step.timeout_s.to_string()]);
    let mut carried: Vec<_> = step.rows.iter().flat_map(|r| r.carry.iter().copied()).collect();
    carried.sort();
    carried.dedup();
    for &item in &carried {
        carry(item, &mut c);
    }
    let pindown = step.rows.iter().any(|r| r.script.contains("pindown "));
    if pindown {
        c.arg("--pindown");
    }
    // Emulation magnifies what an unoptimised build costs; short rows do not repay the other build.
    if step.full && (pindown || carried.iter().any(|item| item.starts_with("lib:"))) {
        c.arg("--release");
    }
    c.args(["--", &script(&step.rows)]);
    Ok(c)
}

/// What takes more than Rust to build may be missing: the row then finds no such file, and skips.
fn carry(item: &str, c: &mut Command) {
    if let Some(name) = item.strip_prefix("examples-verbs/") {
        match cargo::build_verbs_example(name) {
            Ok(path) => drop(c.arg("--file").arg(path)),
            Err(error) => {
                eprintln!("{item} is not carried ({error}): it takes cmake, clang, libnl and libudev")
            }
        }
    } else if let Some(package) = item.strip_prefix("lib:") {
        c.args(["--library", package]);
    } else if let Some(example) = item.strip_prefix("c:") {
        if let Some(path) = capi::guest_program(example) {
            c.arg("--file").arg(path);
        }
    } else if item.contains(':') {
        c.args(["--test", item]);
    } else {
        c.arg("--file").arg(workspace::root().join(item));
    }
}

fn script(rows: &[Row]) -> String {
    let one = |row: &Row| {
        let (name, script) = (row.name, quote(row.script));
        // A line of its own even after output that ends without one.
        format!("echo '{START}{name}'; sh -c {script}; s=$?; echo; echo \"{END}$s {name}\"\n")
    };
    rows.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: [Row; 2] = [
        Row { name: "good", script: "printf it\\'s", carry: &[] },
        Row { name: "bad", script: "exit 7", carry: &[] },
    ];

    #[test]
    fn each_row_reports_its_own_status() {
        let out = Command::new("sh").args(["-c", &script(&ROWS)]).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let left: Vec<&Row> = ROWS.iter().collect();
        let ends: Vec<_> = text.lines().filter_map(|l| ended(l, &left)).map(|(r, c)| (r.name, c)).collect();
        assert_eq!(ends, [("good", 0), ("bad", 7)]);
    }
}
