//! `pindown top` and `pindown metrics`: live counters of running programs.

mod table;

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use pindown::export::{Exported, running};

use crate::exit::{CliError, Verdict};
use crate::sys::{Screen, end_asked, window_size};
use crate::ui::Palette;

/// Shows the caches of running programs: how well they hit, what they hold. Press q to leave.
///
/// Sees your own programs, or, as root, everybody's. Counters are at most a second old.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only this process.
    pid: Option<u32>,
    /// Seconds between refreshes.
    #[arg(long, default_value_t = 1.0)]
    interval: f64,
    /// Print once and leave; the default where standard output or input is no terminal.
    #[arg(long)]
    once: bool,
    /// One JSON document on standard output; implies --once.
    #[arg(long)]
    json: bool,
}

/// Prints the counters of running programs in Prometheus' text format.
#[derive(clap::Args, Debug)]
pub(crate) struct MetricsArgs {
    /// Only this process.
    pid: Option<u32>,
}

pub(crate) fn metrics(args: &MetricsArgs) -> Result<Verdict, CliError> {
    let seen = caches(args.pid);
    let text = |e: &Exported| (e.pid.to_string(), e.cache.to_string());
    let names: Vec<_> = seen.iter().map(text).collect();
    let labelled = seen.iter().zip(&names).map(|(e, (pid, cache))| {
        let labels = vec![
            ("pid", pid.as_str()),
            ("cache", cache.as_str()),
            ("command", e.command.as_str()),
            ("provider", e.provider.as_str()),
            ("monitor", e.monitor.as_str()),
        ];
        (labels, e.stats)
    });
    let all: Vec<_> = labelled.collect();
    print(&pindown::metrics::prometheus_all(&all));
    Ok(Verdict::Good)
}

pub(crate) fn run(args: &Args) -> Result<Verdict, CliError> {
    let interval = Duration::try_from_secs_f64(args.interval)
        .ok()
        .filter(|i| (Duration::from_millis(50)..=Duration::from_secs(3600)).contains(i))
        .ok_or_else(|| CliError::Usage("--interval must be from 0.05 to 3600 seconds".into()))?;
    let interactive = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if args.json {
        print(&format!("{}\n", table::json(&caches(args.pid))));
    } else if args.once || !interactive {
        print(&table::text(&caches(args.pid), &[], Palette::for_stdout(), usize::MAX).join("\n"));
        print("\n");
    } else {
        watch(args.pid, interval)
            .map_err(|e| CliError::machine(format!("the terminal: {e}"), "use --once"))?;
    }
    Ok(Verdict::Good)
}

fn caches(pid: Option<u32>) -> Vec<Exported> {
    let mut seen = running();
    seen.retain(|e| pid.is_none_or(|p| e.pid == p));
    seen
}

/// The reader may have seen enough (`| head`).
fn print(text: &str) {
    _ = std::io::stdout().write_all(text.as_bytes());
}

fn watch(pid: Option<u32>, interval: Duration) -> std::io::Result<()> {
    let screen = Screen::enter()?;
    let mut before = Vec::new();
    loop {
        let now = Instant::now();
        let seen = caches(pid);
        let window = window_size();
        draw(&table::text(&seen, &before, Palette::for_stdout(), window.0), window)?;
        before = seen;
        loop {
            if end_asked() {
                return Ok(());
            }
            let left = interval.saturating_sub(now.elapsed());
            match screen.key(left) {
                // q, Ctrl-C, Ctrl-D, Escape
                Some(b'q' | b'Q' | 3 | 4 | 27) => return Ok(()),
                Some(_) => {}
                None => break, // time, or the window's size, is new
            }
        }
    }
}

/// As many lines as there is room for, the rest of the screen blank.
fn draw(lines: &[String], (_, rows): (usize, usize)) -> std::io::Result<()> {
    let mut out = String::from("\x1b[H");
    for line in lines.iter().take(rows.saturating_sub(1)) {
        out.push_str(line);
        out.push_str("\x1b[K\r\n");
    }
    out.push_str("\x1b[J");
    let mut stdout = std::io::stdout();
    stdout.write_all(out.as_bytes())?;
    stdout.flush()
}
