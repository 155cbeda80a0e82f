//! Facts about this machine: what `pindown doctor` prints, and why a monitor or provider does or
//! does not work here.
//!
//! Asking changes nothing that outlasts the call: facilities are tried and let go.

mod backends;
mod cgroup;
mod facilities;
mod limits;
#[cfg(feature = "verbs")]
mod verbs;

use std::fmt;

pub use backends::{Backend, Recommendation, monitors, providers, recommended};
pub use facilities::facilities;
pub use limits::{LimitFact, limits};

/// How something stands here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// There, and usable by this process.
    Good,
    /// There, with a restriction that matters to pindown.
    Restricted,
    /// Not there, or refused.
    Missing,
    /// Neither good nor bad.
    Plain,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Good => "yes",
            Self::Restricted => "restricted",
            Self::Missing => "no",
            Self::Plain => "",
        })
    }
}

/// One fact, where it is from, and what to do about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Fact {
    /// What it is about, e.g. `"userfaultfd"`.
    pub name: &'static str,
    /// What was found, in a few words.
    pub value: String,
    /// Whether that is good.
    pub standing: Standing,
    /// The file or call that says so.
    pub source: &'static str,
    /// What to do, where something is to be done.
    pub remedy: Option<&'static str>,
}

impl Fact {
    fn new(name: &'static str, value: impl Into<String>, standing: Standing, source: &'static str) -> Self {
        Self { name, value: value.into(), standing, source, remedy: None }
    }

    fn remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = Some(remedy);
        self
    }

    /// Good, or missing with a remedy.
    fn either(good: bool, name: &'static str, source: &'static str, remedy: &'static str) -> Self {
        if good {
            Self::new(name, "available", Standing::Good, source)
        } else {
            Self::new(name, "not available", Standing::Missing, source).remedy(remedy)
        }
    }
}

/// The running kernel's release (`uname -r`), e.g. `6.18.44`; empty when `/proc` does not say.
pub fn kernel_release() -> String {
    line("/proc/sys/kernel/osrelease").unwrap_or_default()
}

/// The first line of a file, trimmed.
fn line(path: impl AsRef<std::path::Path>) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().next().map(|l| l.trim().to_owned())
}

/// A number that is all that a file holds.
fn number(path: &str) -> Option<u64> {
    line(path)?.parse().ok()
}

/// Field `name` of `/proc/self/status` (`proc_pid_status(5)`).
fn status_field(name: &str) -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let field = status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    Some(field.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_fact_says_what_to_do() {
        for fact in facilities() {
            let good = matches!(fact.standing, Standing::Good | Standing::Plain);
            assert!(good || fact.remedy.is_some(), "{fact:?}");
            assert!(!fact.value.is_empty() && !fact.source.is_empty(), "{fact:?}");
        }
        for backend in monitors().into_iter().chain(providers()) {
            assert!(backend.usable || backend.remedy.is_some(), "{backend:?}");
        }
        for limit in limits() {
            assert!(!limit.remedy.is_empty() && !limit.source.is_empty(), "{limit:?}");
        }
    }

    #[test]
    fn facts_are_this_machines() {
        assert!(kernel_release().starts_with(|c: char| c.is_ascii_digit()));
        let value = |name: &str| limits().into_iter().find(|l| l.name == name).unwrap().value;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count() as i64;
        let counted = value("mappings in use").unwrap() as i64;
        assert!((counted - maps).abs() < 200, "{counted} counted, {maps} lines");
        assert_eq!(value("vm.max_map_count"), number("/proc/sys/vm/max_map_count"));
    }

    #[test]
    fn what_is_recommended_is_usable() {
        let recommended = recommended();
        let usable = |all: Vec<Backend>, name: &str| all.into_iter().any(|b| b.name == name && b.usable);
        assert!(usable(monitors(), recommended.monitor));
        assert!(recommended.provider.is_none_or(|p| usable(providers(), p)));
    }
}
