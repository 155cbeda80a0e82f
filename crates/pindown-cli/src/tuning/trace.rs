//! `pindown trace`: records a program, or converts a recording.

use std::path::{Path, PathBuf};
use std::process::Command;

use pindown_replay::read::{Format, write};

use super::load;
use crate::exit::{CliError, Verdict};

/// Records what a program that uses pindown asks of its caches, or converts a recording.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Where to; JSON lines if the name ends in .jsonl or .json, else the compact form. Must not exist.
    #[arg(short = 'o', long = "output", value_name = "FILE", required = true)]
    output: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<std::ffi::OsString>,
}

#[derive(clap::Subcommand, Debug)]
enum Verb {
    /// From either form (or `suite:NAME`, a generated trace) to the one that OUT's name says.
    Convert {
        /// What to read.
        input: PathBuf,
        /// What to write.
        out: PathBuf,
    },
}

pub(crate) fn run(args: &Args) -> Result<Verdict, CliError> {
    match (&args.verb, &args.output) {
        (Some(Verb::Convert { input, out }), _) => convert(input, out),
        (None, Some(output)) => record(output, &args.command),
        (None, None) => Err(CliError::Usage("-o FILE says where to record to".into())),
    }
}

fn convert(input: &Path, out: &Path) -> Result<Verdict, CliError> {
    let events = load::events(input)?;
    let bytes = write(out, &events, Format::of(out)).map_err(|e| CliError::Usage(e.to_string()))?;
    println!("{}: {} events, {bytes} bytes", out.display(), events.len());
    Ok(Verdict::Good)
}

fn record(output: &Path, command: &[std::ffi::OsString]) -> Result<Verdict, CliError> {
    if output.exists() {
        return Err(CliError::Usage(format!(
            "{} exists: remove it or choose another name",
            output.display()
        )));
    }
    // The program may change its directory before it builds a cache.
    let absolute = std::path::absolute(output).map_err(|e| CliError::Usage(e.to_string()))?;
    let (program, arguments) =
        command.split_first().ok_or_else(|| CliError::Usage("which program? -- CMD".into()))?;
    let status = Command::new(program)
        .args(arguments)
        .env(pindown::trace::VARIABLE, &absolute)
        .status()
        .map_err(|e| CliError::Usage(format!("{}: {e}", program.display())))?;
    let events = match absolute.exists() {
        true => load::events(&absolute)?.len(),
        false => 0,
    };
    if events == 0 {
        return Err(CliError::machine(
            format!("{} built no pindown cache, so nothing was recorded", program.display()),
            "run a program that uses pindown (or load the preload library into a verbs program)",
        ));
    }
    eprintln!("{}: {events} events; the program ended with {status}", output.display());
    Ok(if status.success() { Verdict::Good } else { Verdict::Bad })
}
