//! [`Child`]: a process that measures one subject.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use crate::exit::CliError;

/// A measuring process, which prepared and waits.
#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    subject: String,
    values: Vec<f64>,
    error: Option<String>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) subject: String,
    /// Each round's.
    pub(super) values: Vec<f64>,
    pub(super) error: Option<String>,
}

impl Child {
    /// Starts it and waits until it is ready. What it lacks is its own message, on standard error.
    pub(super) fn start(program: &Path, args: &[&str]) -> Result<Self, CliError> {
        let failed = |what: &str| {
            CliError::machine(
                format!("{} {}: {what}", program.display(), args.join(" ")),
                "see the message above",
            )
        };
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(|error| failed(&error.to_string()))?;
        let (Some(orders), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(failed("no pipes"));
        };
        let mut child = Self {
            process,
            orders,
            answers: BufReader::new(answers),
            subject: String::new(),
            values: Vec::new(),
            error: None,
        };
        match child.answer().strip_prefix("ready ") {
            Some(subject) => child.subject = subject.to_owned(),
            None => child.error = Some("it could not prepare".into()),
        }
        if child.subject.is_empty() { Err(failed("it could not prepare")) } else { Ok(child) }
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        // An end of file is an empty answer.
        let _ = self.answers.read_line(&mut line);
        line.trim_end().to_owned()
    }

    /// Has it measure one round.
    pub(super) fn round(&mut self) {
        if self.error.is_some() {
            return;
        }
        let told = self.orders.write_all(b"\n").and_then(|()| self.orders.flush());
        let answer = if told.is_ok() { self.answer() } else { String::new() };
        match answer.parse::<f64>() {
            Ok(value) => self.values.push(value),
            Err(_) if answer.is_empty() => self.error = Some("it ended early".into()),
            Err(_) => self.error = Some(answer.trim_start_matches("error ").to_owned()),
        }
    }

    /// Ends it.
    pub(super) fn finish(self) -> Outcome {
        let Self { mut process, orders, subject, values, error, .. } = self;
        drop(orders);
        let _ = process.wait();
        Outcome { subject, values, error }
    }
}
