//! `pindown helper`: the eBPF monitor for processes without its capabilities.

use std::path::PathBuf;

use pindown::helper::{HelperError, Limits, Server, default_socket};
use pindown::monitor::ebpf::Variant;

use crate::exit::{CliError, Verdict};
use crate::monitors::chain;

/// Serve the eBPF monitor to other processes (needs CAP_BPF and CAP_PERFMON).
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Where to listen; systemd's socket comes first. Clients look at $PINDOWN_HELPER, else here.
    #[arg(long, value_name = "PATH", default_value_os_t = default_socket())]
    socket: PathBuf,
    /// How to observe the kernel; the best it accepts if not given.
    #[arg(long, value_enum)]
    variant: Option<VariantName>,
    /// Clients at a time, at most 256.
    #[arg(long, value_name = "N", default_value_t = Limits::default().clients)]
    max_clients: usize,
    /// Clients at a time of one user.
    #[arg(long, value_name = "N", default_value_t = Limits::default().clients_per_uid)]
    max_clients_per_uid: usize,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum VariantName {
    Fexit,
    Tracepoint,
}

/// Serves until killed.
pub(crate) fn run(args: &Args) -> Result<Verdict, CliError> {
    let variant = args.variant.map(|v| match v {
        VariantName::Fexit => Variant::Fexit,
        VariantName::Tracepoint => Variant::Tracepoint,
    });
    let mut limits = Limits::default();
    limits.clients = args.max_clients.min(256);
    limits.clients_per_uid = args.max_clients_per_uid;
    let server = Server::start(&args.socket, variant, limits).map_err(|e| refused(&e))?;
    println!("pindown helper: serving at {} ({})", args.socket.display(), server.variant().name());
    server.serve().map(|()| Verdict::Good).map_err(|e| refused(&e))
}

fn refused(error: &HelperError) -> CliError {
    let remedy = match error {
        HelperError::Programs(_) => {
            "run as root, or with CAP_BPF and CAP_PERFMON, on Linux 6.1 or later with BTF"
        }
        _ => "create the directory of the socket, or choose another with --socket",
    };
    CliError::machine(chain(error), remedy)
}
