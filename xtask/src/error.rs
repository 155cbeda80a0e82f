//! The one error of xtask: every variant says what to do about it.

use std::path::PathBuf;

/// Exit status for a failure of xtask itself, so that it is not mistaken for the command's.
pub(crate) const EXIT_XTASK: i32 = 125;

/// Exit status when the time is up, as coreutils' `timeout` has it.
pub(crate) const EXIT_TIMEOUT: i32 = 124;

pub(crate) type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{what} is missing: {remedy}")]
    Missing { what: String, remedy: String },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("`{command}` failed ({status}){output}")]
    Command { command: String, status: String, output: String },
    #[error("{0}")]
    Other(String),
}

/// Names the file in an I/O error.
pub(crate) trait At<T> {
    fn at(self, action: &'static str, path: &std::path::Path) -> Result<T>;
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, action: &'static str, path: &std::path::Path) -> Result<T> {
        self.map_err(|source| Error::Io { action, path: path.to_owned(), source })
    }
}
