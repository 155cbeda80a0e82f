//! `pindown replay`: every policy and budget over one trace.

use std::path::PathBuf;

use pindown::PolicyKind;
use pindown_replay::advise::{advise_on, bytes, time};
use pindown_replay::{Budget, Curves, Workload, default_budgets, report};

use super::{emit, load};
use crate::exit::{CliError, Verdict};
use crate::ui::{Colour, Palette, progress};

/// Replays a trace against eviction policies and budgets, beside the best that is possible.
///
/// Uses the very policies that the cache runs. Widening of registrations is not simulated.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The trace, of either form; or `suite:NAME` for a generated one.
    file: PathBuf,
    /// A policy (repeatable; all by default).
    #[arg(long = "policy", value_name = "NAME")]
    policies: Vec<PolicyKind>,
    /// Most bytes registered at a time, e.g. 64M (repeatable; a spread by default).
    #[arg(long = "max-bytes", value_name = "BYTES", value_parser = load::bytes)]
    max_bytes: Vec<u64>,
    /// Most registrations at a time (repeatable).
    #[arg(long = "max-regions", value_name = "N")]
    max_regions: Vec<u64>,
    /// Also writes a report: one page, for a browser.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// One JSON document on standard output.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Verdict, CliError> {
    let workload = load::workload(&args.file)?;
    let budgets = budgets(args, &workload);
    let policies = if args.policies.is_empty() { PolicyKind::ALL } else { &args.policies };
    let bar = progress(Curves::steps(&workload, policies, &budgets), "replaying");
    let curves = Curves::compute(&workload, policies, &budgets, &mut |steps| bar.inc(steps));
    bar.finish_and_clear();
    if args.json {
        emit(&format!("{}\n", serde_json::to_string(&curves).unwrap_or_default()));
    } else {
        emit(&table(&workload, &curves, Palette::for_stdout()));
    }
    if let Some(path) = &args.html {
        write_report(args, &workload, curves, path)?;
    }
    Ok(Verdict::Good)
}

/// All pairs of what was asked for.
fn budgets(args: &Args, workload: &Workload) -> Vec<Budget> {
    if args.max_bytes.is_empty() && args.max_regions.is_empty() {
        return default_budgets(workload);
    }
    let or_any = |list: Vec<u64>| if list.is_empty() { vec![u64::MAX] } else { list };
    let mut bytes = or_any(args.max_bytes.clone());
    let mut regions = or_any(args.max_regions.clone());
    bytes.sort_unstable();
    regions.sort_unstable();
    let with =
        |max_bytes| regions.iter().map(move |max_regions| Budget { max_bytes, max_regions: *max_regions });
    bytes.into_iter().flat_map(with).collect()
}

fn write_report(args: &Args, workload: &Workload, curves: Curves, path: &PathBuf) -> Result<(), CliError> {
    let page = report::html(&load::title(&args.file), workload, &advise_on(workload, curves));
    std::fs::write(path, page).map_err(|e| CliError::Usage(format!("{}: {e}", path.display())))?;
    if !args.json {
        emit(&format!("\nreport: {}\n", path.display()));
    }
    Ok(())
}

fn table(workload: &Workload, curves: &Curves, palette: Palette) -> String {
    let mut out = format!(
        "{}\n{}\n",
        palette.bold(&format!(
            "{} requests for {} buffers, {} in all",
            workload.requests(),
            workload.footprint_regions(),
            bytes(workload.footprint_bytes())
        )),
        palette.bold(
            "room                 policy       hits      misses   evicted   changed        cost   x best"
        )
    );
    for best in &curves.optimal {
        let same =
            |r: &&pindown_replay::Run| (r.max_bytes, r.max_regions) == (best.max_bytes, best.max_regions);
        let room = match (best.max_bytes, best.max_regions) {
            (u64::MAX, regions) => format!("{regions} regions"),
            (max_bytes, u64::MAX) => bytes(max_bytes),
            (max_bytes, regions) => format!("{}, {regions} reg.", bytes(max_bytes)),
        };
        for (at, run) in curves.runs.iter().filter(same).enumerate() {
            let ratio = run.cost_ns as f64 / best.cost_ns.max(1) as f64;
            let colour = if ratio < 1.35 { Colour::Green } else { Colour::Yellow };
            out.push_str(&format!(
                "{:<20} {:<9} {:>6.1} %  {:>8}  {:>8}  {:>8}  {:>10}   {}\n",
                if at == 0 { room.as_str() } else { "" },
                run.policy,
                run.hits as f64 * 100.0 / run.acquires.max(1) as f64,
                run.misses,
                run.evictions,
                run.invalidated,
                time(run.cost_ns),
                palette.paint(colour, &format!("{ratio:.2}"))
            ));
        }
        let name = if best.exact { "optimum" } else { "bound" };
        let what = format!(
            "{:<20} {name:<9} {:>8}  {:>8}  {:>20}  {:>10}",
            "",
            "",
            best.misses,
            "",
            time(best.cost_ns)
        );
        out.push_str(&format!("{}\n", palette.paint(Colour::Grey, &what)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(max_bytes: &[u64], max_regions: &[u64]) -> Args {
        Args {
            file: "suite:cyclic".into(),
            policies: vec![PolicyKind::Lru],
            max_bytes: max_bytes.to_vec(),
            max_regions: max_regions.to_vec(),
            html: None,
            json: true,
        }
    }

    #[test]
    fn budgets_are_all_pairs_in_order() {
        let workload = load::workload(&args(&[], &[]).file).expect("generated");
        assert_eq!(budgets(&args(&[], &[]), &workload), default_budgets(&workload));
        let pairs = budgets(&args(&[9 << 20, 1 << 20], &[7]), &workload);
        let expected = [1u64 << 20, 9 << 20].map(|max_bytes| Budget { max_bytes, max_regions: 7 });
        assert_eq!(pairs, expected);
    }

    #[test]
    fn an_unknown_trace_of_the_suite_lists_those_that_exist() {
        let error = load::workload("suite:none".as_ref()).unwrap_err().to_string();
        assert!(error.contains("cyclic") && error.contains("kv-cache"), "{error}");
    }
}
