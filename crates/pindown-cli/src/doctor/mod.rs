//! `pindown doctor`: what this machine offers, what `auto` takes, and what to do about the rest.

mod report;
mod table;
mod verbs;

use crate::exit::{CliError, Verdict};
use crate::ui::Palette;

/// What this machine offers and which monitor and provider `auto` takes, each fact with its
/// source, each problem with its remedy. Changes nothing.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// One JSON document on standard output.
    #[arg(long)]
    json: bool,
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<Verdict, CliError> {
    let report = report::Report::new();
    if args.json {
        println!("{}", serde_json::to_string(&report).map_err(|e| CliError::Usage(e.to_string()))?);
    } else {
        print!("{}", table::render(&report, Palette::for_stdout()));
    }
    Ok(Verdict::Good)
}
