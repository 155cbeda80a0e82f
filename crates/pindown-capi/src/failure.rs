//! [`Failure`]: what a function did not do, on its way to the caller.

use std::error::Error;
use std::io;

use crate::status::pindown_status::{self, *};

/// A status with its words. Boxed, so that the way of success carries one word.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: pindown_status,
    pub(crate) errno: i32,
    pub(crate) message: String,
}

pub(crate) type Result<T> = std::result::Result<T, Box<Failure>>;

impl Failure {
    /// With words of our own.
    #[cold]
    pub(crate) fn new(status: pindown_status, message: impl Into<String>) -> Box<Self> {
        Box::new(Self { status, errno: 0, message: message.into() })
    }

    #[cold]
    pub(crate) fn invalid(message: impl Into<String>) -> Box<Self> {
        Self::new(PINDOWN_E_INVALID, message)
    }

    /// An argument that must not be NULL.
    #[cold]
    pub(crate) fn null(what: &str) -> Box<Self> {
        Self::invalid(format!("{what} is NULL"))
    }

    /// With an error's words, and those of what caused it; the first errno among them.
    #[cold]
    pub(crate) fn of(status: pindown_status, error: &(dyn Error + 'static)) -> Box<Self> {
        let mut failure = Self::new(status, error.to_string());
        let mut cause = Some(error);
        while let Some(error) = cause {
            let text = error.to_string();
            if !failure.message.contains(&text) {
                failure.message = format!("{}: {text}", failure.message);
            }
            if let Some(io) = error.downcast_ref::<io::Error>() {
                failure.errno = io.raw_os_error().unwrap_or(failure.errno);
            }
            cause = error.source();
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_deep_in_the_chain_is_found_and_said() {
        use pindown::{BuildError, MonitorError};
        let source = MonitorError::Io { what: "userfaultfd(2)", source: io::Error::from_raw_os_error(1) };
        let failure = Failure::of(PINDOWN_E_MONITOR, &BuildError::Monitor { name: "uffd", source });
        assert_eq!(failure.errno, 1);
        for part in ["uffd", "userfaultfd(2)", "os error 1"] {
            assert!(failure.message.contains(part), "{}", failure.message);
        }
    }
}
