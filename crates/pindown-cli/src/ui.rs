//! What people see: colours and progress bars, on a terminal alone.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The colours in use, with the meaning they have everywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Colour {
    /// Good.
    Green,
    /// Good, without the benefit.
    Blue,
    /// To be known about.
    Yellow,
    /// Bad.
    Red,
    /// Not there.
    Grey,
}

/// Paints, or does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    enabled: bool,
}

impl Palette {
    /// Colours if standard output is a terminal and `NO_COLOR` is not set.
    pub(crate) fn for_stdout() -> Self {
        Self { enabled: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() }
    }

    pub(crate) fn paint(self, colour: Colour, text: &str) -> String {
        let code = match colour {
            Colour::Green => "32",
            Colour::Blue => "34",
            Colour::Yellow => "33",
            Colour::Red => "1;31",
            Colour::Grey => "90",
        };
        self.with(code, text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.enabled { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// A bar on standard error, if that is a terminal.
pub(crate) fn progress(length: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{prefix:>12} {wide_bar:.green} {pos}/{len} {msg} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(what);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A count in at most seven characters, e.g. `12.3k`.
pub(crate) fn count(n: u64) -> String {
    match n {
        0..=99_999 => n.to_string(),
        100_000..=9_999_999 => format!("{:.0}k", n as f64 / 1e3),
        _ => format!("{:.1}M", n as f64 / 1e6),
    }
}

/// Nanoseconds in at most eight characters, e.g. `12.3 µs`.
pub(crate) fn duration(ns: u64) -> String {
    match ns {
        0..=999 => format!("{ns} ns"),
        1_000..=999_999 => format!("{:.1} µs", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

/// Columns that output may take: the terminal's; any number where there is none.
pub(crate) fn columns() -> usize {
    if std::io::stdout().is_terminal() { crate::sys::window_size().0 } else { usize::MAX }
}

/// `text` with its lines broken between words. Colours take no room.
pub(crate) fn wrapped(text: &str, columns: usize) -> String {
    let (mut out, mut used) = (String::new(), 0);
    for word in text.split(' ') {
        let length = visible(word);
        match used {
            0 => used = length,
            _ if used + 1 + length > columns => {
                out.push('\n');
                used = length;
            }
            _ => {
                out.push(' ');
                used += 1 + length;
            }
        }
        out.push_str(word);
    }
    out
}

/// Characters of a word that are seen: all but colours.
fn visible(word: &str) -> usize {
    let mut in_colour = false;
    let seen = |c: &char| {
        let hidden = in_colour || *c == '\x1b';
        in_colour = hidden && *c != 'm';
        !hidden
    };
    word.chars().filter(seen).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_colours_take_no_room() {
        assert_eq!(wrapped("aa bb cc", 5), "aa bb\ncc");
        assert_eq!(wrapped("aa bb cc", usize::MAX), "aa bb cc");
        assert_eq!(wrapped("\x1b[1;31maa bb\x1b[0m cc", 5), "\x1b[1;31maa bb\x1b[0m\ncc");
        assert_eq!(wrapped("longer than that", 3), "longer\nthan\nthat");
    }
}
