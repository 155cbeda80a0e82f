//! The result, as JSON.

use pindown_bench::{Figure, Unit};
use serde::Serialize;

use super::child::Outcome;
use crate::machine;

/// One figure.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// Medians; null where it was not measured.
    pub(crate) pindown: Option<f64>,
    pub(crate) ucx: Option<f64>,
    pub(crate) floor: Option<f64>,
    /// What the floor is.
    pub(crate) floor_is: &'static str,
    /// pindown, with the monitor that ran.
    pub(crate) subject: String,
    /// The lowest and highest of pindown's rounds.
    pub(crate) range: Option<(f64, f64)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<String>,
}

impl Measured {
    pub(super) fn new(
        figure: &'static Figure,
        own: Option<Outcome>,
        peer: Option<Outcome>,
        floor: Option<Outcome>,
    ) -> Self {
        let outcomes = [&own, &peer, &floor].into_iter().flatten();
        let errors = outcomes.filter_map(|o| Some(format!("{}: {}", o.subject, o.error.as_ref()?))).collect();
        let median = |outcome: &Option<Outcome>| outcome.as_ref().and_then(|o| median(&o.values));
        let values = own.as_ref().map(|o| o.values.as_slice()).unwrap_or_default();
        let range =
            median(&own).map(|some| values.iter().fold((some, some), |(l, h), v| (l.min(*v), h.max(*v))));
        Self {
            name: figure.name,
            unit: figure.unit.name(),
            pindown: median(&own),
            ucx: median(&peer),
            floor: median(&floor),
            floor_is: figure.floor,
            subject: own.map(|o| o.subject).unwrap_or_default(),
            range,
            errors,
        }
    }

    /// The figures for people, in columns.
    pub(crate) fn is_time(&self) -> bool {
        self.unit == Unit::Ns.name()
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// The document.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) kernel: String,
    pub(crate) processors: usize,
    pub(crate) rounds: u32,
    pub(crate) figures: Vec<Measured>,
}

impl Report {
    pub(super) fn new(rounds: u32, figures: Vec<Measured>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { kernel: machine::kernel_release(), processors, rounds, figures }
    }

    /// Whether an answer was wrong, or a figure could not be measured.
    pub(crate) fn is_bad(&self) -> bool {
        let wrong = |f: &Measured| f.name == "check" && f.pindown.is_some_and(|n| n > 0.0);
        self.figures.iter().any(|f| wrong(f) || !f.errors.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(values: &[f64]) -> Option<Outcome> {
        Some(Outcome { subject: "pindown, monitor uffd".into(), values: values.to_vec(), error: None })
    }

    #[test]
    fn the_contracts_fields_are_there_and_medians() {
        let figure = pindown_bench::figure("hit_same_1t").unwrap();
        let measured = Measured::new(figure, outcome(&[9.0, 1.0, 3.0]), None, outcome(&[0.5]));
        let json = serde_json::to_value(Report::new(3, vec![measured])).unwrap();
        let row = &json["figures"][0];
        assert_eq!((row["name"].as_str(), row["unit"].as_str()), (Some("hit_same_1t"), Some("ns")));
        assert_eq!((row["pindown"].as_f64(), row["floor"].as_f64()), (Some(3.0), Some(0.5)));
        assert!(row["ucx"].is_null() && row["range"][1] == 9.0);
    }

    #[test]
    fn a_wrong_answer_is_bad_and_so_is_an_error() {
        let check = pindown_bench::figure("check").unwrap();
        let report = |values, error: Option<&str>| {
            let mut own = outcome(values).unwrap();
            own.error = error.map(str::to_owned);
            Report::new(1, vec![Measured::new(check, Some(own), None, None)])
        };
        assert!(!report(&[0.0], None).is_bad());
        assert!(report(&[2.0], None).is_bad() && report(&[0.0], Some("it ended early")).is_bad());
    }
}
