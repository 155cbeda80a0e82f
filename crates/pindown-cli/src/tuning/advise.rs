//! `pindown advise`: which settings a trace asks for.

use std::path::PathBuf;

use pindown_replay::advise::{Advice, advise, bytes, steps};

use super::{emit, load};
use crate::exit::{CliError, Verdict};
use crate::ui::{Palette, progress};

/// Says what to set for the program that a trace was recorded from, and why.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The trace, of either form; or `suite:NAME` for a generated one.
    file: PathBuf,
    /// One JSON document on standard output.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Verdict, CliError> {
    let workload = load::workload(&args.file)?;
    let bar = progress(steps(&workload), "replaying");
    let advice = advise(&workload, &mut |steps| bar.inc(steps));
    bar.finish_and_clear();
    if args.json {
        emit(&format!("{}\n", serde_json::to_string(&advice).unwrap_or_default()));
    } else {
        emit(&text(&advice, Palette::for_stdout()));
    }
    Ok(Verdict::Good)
}

fn text(advice: &Advice, palette: Palette) -> String {
    let head = format!(
        "Keep up to {} registered ({} registrations), with the {} policy.",
        bytes(advice.max_bytes),
        advice.max_regions,
        advice.policy
    );
    let mut out = format!("{}\n\n", palette.bold(&head));
    for reason in &advice.reasons {
        out.push_str(&wrap(reason, 96));
    }
    out.push_str(&format!("\n{}\n", advice.snippet));
    out
}

/// As a list item.
fn wrap(text: &str, width: usize) -> String {
    let (mut out, mut line) = (String::new(), String::from("-"));
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > width {
            out.push_str(&line);
            out.push('\n');
            line = String::from(" ");
        }
        line.push(' ');
        line.push_str(word);
    }
    out + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_and_nothing_is_lost() {
        let text = "one two three four five six seven";
        let wrapped = wrap(text, 14);
        assert!(wrapped.lines().all(|l| l.len() <= 14), "{wrapped}");
        let words: Vec<_> = wrapped.split_whitespace().skip(1).collect();
        assert_eq!(words.join(" "), text);
    }
}
