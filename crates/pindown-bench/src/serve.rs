//! The measuring process: one subject, one figure, a round for each line it reads.

use std::io::{BufRead, Write};

use crate::figure::figure;
use crate::kinds;
use crate::subject::{Settings, Subject};

/// Prepares the figure `name`, writes `ready` and what it runs with, then, for each line of standard
/// input, one round's value (or `error` and why) to standard output.
///
/// # Errors
///
/// Says what is missing; nothing was measured then.
pub fn serve<S: Subject>(name: &str, settings: &Settings) -> Result<(), String> {
    let figure = figure(name).ok_or_else(|| format!("there is no figure {name:?}"))?;
    let (mut round, what) = kinds::prepare::<S>(figure.kind, settings)?;
    say(&format!("ready {what}"))?;
    for line in std::io::stdin().lock().lines() {
        if line.is_err() {
            break;
        }
        match round() {
            Ok(value) => say(&value.to_string())?,
            Err(why) => say(&format!("error {why}"))?,
        }
    }
    Ok(())
}

fn say(line: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}
