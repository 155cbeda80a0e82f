//! Verbs: memory regions, RDMA WRITE and READ over a loopback connection.

use std::io;

use pindown::provider::verbs::rc::{EndpointOptions, Mover, RcError};
use pindown::provider::verbs::{Key, OpenError, Options, Paging, Verbs, devices};
use pindown::{Builder, Cache};

use super::{DeviceArgs, Engine};
use crate::exit::CliError;
use crate::monitors::{MonitorName, chain, no_monitor};
use crate::sys::Span;

/// A connection to itself.
pub(crate) struct VerbsEngine(Mover);

impl Engine for VerbsEngine {
    type Provider = Verbs;

    fn open(
        monitor: MonitorName,
        device: &DeviceArgs,
        lane_bytes: usize,
    ) -> Result<(Self, Cache<Verbs>), CliError> {
        let cache = cache(monitor, device)?;
        let mover = Mover::new(cache.provider(), &endpoint_options(device), 1, lane_bytes);
        Ok((Self(mover.map_err(|error| no_connection(&error))?), cache))
    }

    fn move_out(&mut self, key: Key, span: Span) -> io::Result<()> {
        self.0.write(key, span.ptr(), span.len_bytes()).map(drop).map_err(io::Error::other)
    }

    fn move_in(&mut self, key: Key, span: Span) -> io::Result<()> {
        // SAFETY: no Rust reference points into a span, and the caller holds the registration.
        unsafe { self.0.read_into(key, span.ptr(), span.len_bytes()) }.map_err(io::Error::other)
    }

    fn lane(&self) -> &[u8] {
        self.0.lane(0)
    }

    fn lane_mut(&mut self) -> &mut [u8] {
        self.0.lane_mut(0)
    }
}

/// A cache over the device; `odp` is a way to register and a monitor in one.
pub(crate) fn cache(monitor: MonitorName, device: &DeviceArgs) -> Result<Cache<Verbs>, CliError> {
    let (paging, choice) = match monitor {
        MonitorName::Odp => (Paging::OnDemand, pindown::MonitorChoice::Auto),
        other => (Paging::Pinned, other.choice()?),
    };
    let provider = Verbs::open(&name(device)?, Options::default().paging(paging));
    let provider = provider.map_err(|error| no_device(&error))?;
    Builder::new(provider).monitor(choice).build().map_err(|error| no_monitor(&error))
}

pub(crate) fn endpoint_options(device: &DeviceArgs) -> EndpointOptions {
    EndpointOptions::default().gid_index(device.gid_index)
}

/// The device asked for, or the first with an active port.
fn name(args: &DeviceArgs) -> Result<String, CliError> {
    if let Some(name) = &args.device {
        return Ok(name.clone());
    }
    let all = devices().map_err(|error| no_device(&error))?;
    let active = all.iter().find(|d| d.ports.iter().any(|p| p.state == "active"));
    active.map(|d| d.name.clone()).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|d| d.name.as_str()).collect();
        CliError::machine(
            format!("no verbs device with an active port (devices: {names:?})"),
            "bring a port up, or make a soft one: `modprobe rdma_rxe; rdma link add rxe0 type rxe netdev NETDEV`",
        )
    })
}

fn no_device(error: &OpenError) -> CliError {
    let remedy = match error {
        OpenError::Load(_) => "install libibverbs1 and ibverbs-providers",
        OpenError::NoOnDemandPaging { .. } => {
            "take --monitor uffd or ebpf, or a device with on-demand paging"
        }
        _ => "see `pindown doctor`, `ibv_devinfo`, and whether /dev/infiniband/uverbs* may be opened",
    };
    CliError::machine(chain(error), remedy)
}

pub(crate) fn no_connection(error: &RcError) -> CliError {
    CliError::machine(
        format!("no connection: {}", chain(error)),
        "check that the port is active and has a GID (`ibv_devinfo -v`); choose one with --gid-index",
    )
}
