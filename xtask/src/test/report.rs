//! What became of each step.

use std::time::Duration;

/// How a step ended; the text says why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

/// The verdicts so far.
pub(crate) struct Report {
    rows: Vec<(String, Duration, Verdict)>,
    strict: bool,
}

impl Report {
    pub(crate) fn new(strict: bool) -> Self {
        Self { rows: Vec::new(), strict }
    }

    pub(crate) fn add(&mut self, name: &str, took: Duration, verdict: Verdict) {
        match &verdict {
            Verdict::Passed => eprintln!("=== {name}: passed in {:.1} s", took.as_secs_f32()),
            Verdict::Failed(why) => eprintln!("=== {name}: FAILED: {why}"),
            Verdict::Skipped(why) => eprintln!("=== {name}: skipped: {why}"),
        }
        self.rows.push((name.to_owned(), took, verdict));
    }

    fn count(&self, of: impl Fn(&Verdict) -> bool) -> usize {
        self.rows.iter().filter(|(_, _, v)| of(v)).count()
    }

    /// Prints the table and the count, and returns the exit status.
    pub(crate) fn print(&self) -> i32 {
        println!("\n{:<44} {:>8}  result", "step", "seconds");
        for (name, took, verdict) in &self.rows {
            let result = match verdict {
                Verdict::Passed => "passed".to_owned(),
                Verdict::Failed(why) => format!("FAILED: {why}"),
                Verdict::Skipped(why) => format!("skipped: {why}"),
            };
            println!("{name:<44} {:>8.1}  {result}", took.as_secs_f32());
        }
        let passed = self.count(|v| *v == Verdict::Passed);
        let failed = self.count(|v| matches!(v, Verdict::Failed(_)));
        let skipped = self.rows.len() - passed - failed;
        println!("\n{passed} passed, {failed} failed, {skipped} skipped");
        let good = failed == 0 && passed > 0 && !(self.strict && skipped > 0);
        i32::from(!good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(verdicts: Vec<Verdict>, strict: bool) -> i32 {
        let mut report = Report::new(strict);
        verdicts.into_iter().for_each(|v| report.add("step", Duration::ZERO, v));
        report.print()
    }

    #[test]
    fn a_failure_fails() {
        assert_eq!(status(vec![Verdict::Passed, Verdict::Failed("x".into())], false), 1);
    }

    #[test]
    fn a_skip_fails_only_where_all_must_run() {
        let verdicts = || vec![Verdict::Passed, Verdict::Skipped("x".into())];
        assert_eq!(status(verdicts(), false), 0);
        assert_eq!(status(verdicts(), true), 1);
    }

    #[test]
    fn nothing_run_is_no_success() {
        assert_eq!(status(vec![], false), 1);
        assert_eq!(status(vec![Verdict::Skipped("x".into())], false), 1);
    }
}
