//! `pindown __man DIR`: the man pages, from the same definitions as `--help`. For packaging.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;

/// Writes pindown.1 and a page for each verb into a directory.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Where to.
    directory: PathBuf,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match clap_mangen::generate_to(super::Cli::command(), &args.directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("writing man pages to {}: {error}", args.directory.display());
            ExitCode::FAILURE
        }
    }
}
