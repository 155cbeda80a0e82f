//! How the program ends.

use std::process::ExitCode;

/// The exit status of a verb that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// 0: what was checked is good.
    Good,
    /// 1: what was checked is bad (stale data, a failed claim).
    Bad,
}

/// Why a verb did not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// Exit status 2.
    #[error("{0}")]
    Usage(String),
    /// Exit status 3; says what is missing and how to get it.
    #[error("this machine cannot do it: {what}\n  remedy: {remedy}")]
    Machine { what: String, remedy: String },
}

impl CliError {
    pub(crate) fn machine(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Machine { what: what.into(), remedy: remedy.into() }
    }

    /// The reason alone, to be part of another text.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Usage(what) | Self::Machine { what, .. } => what,
        }
    }
}

/// The status for the shell; errors go to standard error.
pub(crate) fn code(result: Result<Verdict, CliError>) -> ExitCode {
    match result {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::from(1),
        Err(error) => {
            eprintln!("pindown: {error}");
            ExitCode::from(if matches!(error, CliError::Usage(_)) { 2 } else { 3 })
        }
    }
}
