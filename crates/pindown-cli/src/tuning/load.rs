//! From a file to a workload.

use std::path::Path;

use pindown_replay::Workload;
use pindown_replay::read;
use pindown_replay::suite::Scenario;

use crate::exit::CliError;

/// `suite:` names a generated trace instead of a file.
const SUITE: &str = "suite:";

pub(super) fn workload(file: &Path) -> Result<Workload, CliError> {
    let workload = Workload::compile(&events(file)?, None);
    if workload.requests() == 0 {
        return Err(CliError::Usage(format!(
            "{}: holds no request; record one with `pindown trace -o FILE -- CMD`",
            file.display()
        )));
    }
    Ok(workload)
}

pub(super) fn events(file: &Path) -> Result<Vec<pindown::trace::Event>, CliError> {
    match file.to_str().and_then(|f| f.strip_prefix(SUITE)) {
        Some(name) => Ok(scenario(name)?.trace()),
        None => read::read(file).map_err(|e| CliError::Usage(e.to_string())),
    }
}

fn scenario(name: &str) -> Result<&'static Scenario, CliError> {
    Scenario::named(name).ok_or_else(|| {
        let known: Vec<_> = pindown_replay::suite::SUITE.iter().map(|s| s.name).collect();
        CliError::Usage(format!("no trace of the suite is called {name:?}; there are {}", known.join(", ")))
    })
}

/// A name for titles.
pub(super) fn title(file: &Path) -> String {
    file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}

/// `64M` or `1.5GiB` as bytes.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let upper = text.to_ascii_uppercase();
    let number = upper.trim_end_matches('B').trim_end_matches('I');
    let unit = number.chars().last().and_then(|c| "KMGT".find(c));
    let digits = if unit.is_some() { &number[..number.len() - 1] } else { number };
    let scale = 1024f64.powi(unit.map_or(0, |u| u as i32 + 1));
    match digits.parse::<f64>() {
        Ok(n) if n * scale >= 4096.0 && n * scale < 1e18 => Ok((n * scale) as u64),
        _ => Err("must be a size of at least 4K, e.g. 64M or 1.5G".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(bytes("64M"), Ok(64 << 20));
        assert_eq!(bytes("1.5GiB"), Ok(3 << 29));
        assert_eq!(bytes("8192"), Ok(8192));
        assert!(bytes("12").is_err() && bytes("x").is_err() && bytes("").is_err());
    }
}
