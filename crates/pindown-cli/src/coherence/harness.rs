//! Runs cells, each in a child process with a time limit.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use super::cell::{CellReport, Outcome};
use super::cell_helper::CellHelper;
use super::event::{Event, events};
use super::mapping::{MAPPINGS, Mapping};
use crate::monitors::QUIET_VARIABLE;
use crate::sys;

/// Name of the subject without pindown, which shows the hazard.
pub(crate) const RAW: &str = "raw";
/// A cell that takes longer hangs.
pub(crate) const LIMIT_SECONDS: u32 = 8;
/// Linux 6.8 to 6.12 spin in UFFDIO_MOVE over a part of a pinned huge page (`mm/userfaultfd.c`,
/// `move_pages` tries again for as long as the folio cannot be split).
const KERNEL_HANGS: &str = "this kernel hangs in it without pindown too";
const HANG: &str = "hang: ";
/// For loading a monitor and its self-test before that; long, since the machine may be busy.
pub(crate) const START_SECONDS: u32 = 60;

/// One event on one kind of memory, and what came of it.
pub(crate) struct Job {
    pub(crate) mapping: &'static Mapping,
    pub(crate) event: &'static Event,
    /// Without pindown.
    pub(crate) raw: OnceLock<CellReport>,
    /// One report for each monitor, in the order asked for.
    pub(crate) monitored: OnceLock<Vec<CellReport>>,
}

/// All pairs that make sense, filtered by name.
pub(crate) fn jobs(wanted: impl Fn(&Mapping, &Event) -> bool) -> Vec<Job> {
    let pairs = MAPPINGS.iter().flat_map(|mapping| {
        events().filter(|event| event.applies(mapping.traits)).map(move |event| (mapping, event))
    });
    pairs
        .filter(|(mapping, event)| wanted(mapping, event))
        .map(|(mapping, event)| Job { mapping, event, raw: OnceLock::new(), monitored: OnceLock::new() })
        .collect()
}

/// What all cells of a run have in common.
pub(crate) struct Harness<'a> {
    /// The provider and its device, as a cell's arguments.
    pub(crate) provider: &'a [String],
    pub(crate) monitors: &'a [String],
    pub(crate) helper: Option<CellHelper>,
}

impl Harness<'_> {
    /// Runs all jobs, as many at a time as there are CPUs; `done` is called after each.
    pub(crate) fn run_all(&self, jobs: &[Job], done: impl Fn() + Sync) {
        let next = AtomicUsize::new(0);
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        self.run_job(job);
                        done();
                    }
                });
            }
        });
    }

    fn run_job(&self, job: &Job) {
        let mut raw = self.run_cell(job, RAW);
        if is_hang(&raw) {
            raw = self.run_cell(job, RAW); // the machine may have been busy
        }
        let report = |monitor: &String| match is_hang(&raw) {
            true => CellReport::new(Outcome::Unsupported, KERNEL_HANGS),
            false => self.run_cell(job, monitor),
        };
        let reports = self.monitors.iter().map(report).collect();
        let _ = job.raw.set(raw);
        let _ = job.monitored.set(reports);
    }

    fn run_cell(&self, job: &Job, subject: &str) -> CellReport {
        match self.spawn(job, subject) {
            Ok(child) => finish(child),
            Err(error) => CellReport::new(Outcome::Error, format!("the cell did not start: {error}")),
        }
    }

    /// One at a time: a child must not inherit another's half-made pipes.
    fn spawn(&self, job: &Job, subject: &str) -> std::io::Result<Child> {
        static SPAWNING: Mutex<()> = Mutex::new(());
        let _one = SPAWNING.lock();
        Command::new("/proc/self/exe")
            .args(["__cell", job.mapping.name, job.event.name, subject])
            .args(self.provider)
            .envs(self.helper.as_ref().map(CellHelper::variable))
            .env(QUIET_VARIABLE, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    }
}

/// The cell's report; a cell that says nothing in time is ended.
fn finish(mut child: Child) -> CellReport {
    let line = child.stdout.take().and_then(|out| {
        let ready =
            sys::wait_readable(&out, (START_SECONDS + LIMIT_SECONDS + 1) as i32 * 1000).unwrap_or(false);
        let mut line = String::new();
        (ready && BufReader::new(out).read_line(&mut line).is_ok()).then_some(line)
    });
    if let Some(report) = line.as_deref().and_then(CellReport::parse) {
        let _ = child.wait();
        return report;
    }
    let _ = child.kill();
    CellReport::new(Outcome::Error, epitaph(&mut child))
}

fn is_hang(report: &CellReport) -> bool {
    report.outcome == Outcome::Error && report.detail.starts_with(HANG)
}

fn epitaph(child: &mut Child) -> String {
    let status = match child.wait() {
        Ok(status) => status,
        Err(error) => return format!("the cell could not be waited for: {error}"),
    };
    let said = child.stderr.take().and_then(|err| BufReader::new(err).lines().next()).and_then(Result::ok);
    match (status.signal(), said) {
        (Some(libc::SIGALRM | libc::SIGKILL), _) => format!("{HANG}no answer in {LIMIT_SECONDS} s"),
        (Some(signal), _) => format!("the cell was ended by signal {signal}"),
        (None, said) => format!("the cell ended with {status}: {}", said.unwrap_or_default()),
    }
}
