//! Development tasks: `cargo xtask vm` (the lab) and `cargo xtask test`.

mod bench_peers;
mod bpf;
mod capi;
mod cargo;
mod error;
mod fuzz;
mod lab;
mod proc;
mod test;
mod vm;
mod workspace;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Development tasks of pindown")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

/// One file a subcommand; each returns the exit status of this process.
#[derive(Subcommand)]
enum Task {
    /// Run a command under a Debian kernel with soft-RoCE, in qemu.
    Vm(vm::Args),
    /// Rebuild the committed BPF object, or check it.
    Bpf(bpf::Args),
    /// Make the committed C header anew, or check it.
    Header(capi::HeaderArgs),
    /// Install the C library and the command line tool under a prefix.
    Install(capi::InstallArgs),
    /// Run all tests; the last line counts them.
    Test(test::Args),
    /// Compare the cache with UCX's on this machine (needs libucx-dev, which it installs).
    BenchPeers(bench_peers::Args),
    /// Run the fuzz targets (needs cargo-fuzz).
    Fuzz(fuzz::Args),
}

fn main() {
    let status = match Cli::parse().task {
        Task::Vm(args) => vm::run(args),
        Task::Bpf(args) => bpf::run(args),
        Task::Header(args) => capi::header(args),
        Task::Install(args) => capi::install(args),
        Task::Test(args) => test::run(args),
        Task::BenchPeers(args) => bench_peers::run(args),
        Task::Fuzz(args) => fuzz::run(args),
    };
    match status {
        Ok(code) => std::process::exit(code),
        Err(e) => {
            eprintln!("xtask: {e}");
            std::process::exit(error::EXIT_XTASK);
        }
    }
}
