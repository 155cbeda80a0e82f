//! The `pindown` command.

mod bench;
mod coherence;
mod doctor;
mod engine;
mod exit;
#[cfg(feature = "ebpf")]
mod helper;
mod machine;
mod man;
mod monitors;
mod peer;
mod perf;
mod soak;
mod sys;
mod top;
mod tuning;
mod ui;

use std::process::ExitCode;

use clap::Parser;

/// Memory registration that stays right while the address space changes.
#[derive(Parser, Debug)]
#[command(name = "pindown", version, about)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand, Debug)]
enum Verb {
    Perf(perf::Args),
    Coherence(coherence::Args),
    Doctor(doctor::Args),
    Bench(bench::Args),
    Soak(soak::Args),
    #[cfg(feature = "ebpf")]
    Helper(helper::Args),
    Trace(tuning::TraceArgs),
    Replay(tuning::ReplayArgs),
    Advise(tuning::AdviseArgs),
    Top(top::Args),
    Metrics(top::MetricsArgs),
    #[command(name = "__subject", hide = true)]
    Subject(bench::SubjectArgs),
    #[command(name = "__cell", hide = true)]
    Cell(coherence::CellArgs),
    #[command(name = "__man", hide = true)]
    Man(man::Args),
    #[command(name = "__file", hide = true)]
    File(coherence::FileArgs),
}

fn main() -> ExitCode {
    match Cli::parse().verb {
        Verb::Perf(args) => exit::code(perf::run(&args)),
        #[cfg(feature = "ebpf")]
        Verb::Helper(args) => exit::code(helper::run(&args)),
        Verb::Soak(args) => exit::code(soak::run(&args)),
        Verb::Bench(args) => exit::code(bench::run(&args)),
        Verb::Subject(args) => exit::code(bench::run_subject(&args)),
        Verb::Doctor(args) => exit::code(doctor::run(&args)),
        Verb::Trace(args) => exit::code(tuning::trace(&args)),
        Verb::Replay(args) => exit::code(tuning::replay(&args)),
        Verb::Advise(args) => exit::code(tuning::advise(&args)),
        Verb::Top(args) => exit::code(top::run(&args)),
        Verb::Metrics(args) => exit::code(top::metrics(&args)),
        Verb::Coherence(args) => exit::code(coherence::run(&args)),
        Verb::Man(args) => man::run(&args),
        Verb::Cell(args) => coherence::run_cell(&args),
        Verb::File(args) => match coherence::in_other_process(&args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
    }
}
