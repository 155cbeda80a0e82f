//! [`VerbsWire`]: RDMA WRITE and READ over a connection of the device to itself.

use std::io;

use pindown::Cache;
use pindown::provider::verbs::rc::Mover;
use pindown::provider::verbs::{Key, Verbs};

use super::wire::Wire;
use crate::engine::{DeviceArgs, endpoint_options, no_connection, verbs_cache};
use crate::exit::CliError;
use crate::monitors::MonitorName;
use crate::sys::{self, Span};

/// The buffer is the local side of each transfer, a lane of the mover the remote one.
pub(crate) struct VerbsWire(Mover);

impl Wire for VerbsWire {
    type Provider = Verbs;
    const PROVIDER: &'static str = "verbs";
    const REGISTERS: &'static str = "memory regions";

    fn open(monitor: MonitorName, device: &DeviceArgs, len: usize) -> Result<(Self, Cache<Verbs>), CliError> {
        let cache = verbs_cache(monitor, device)?;
        let mover = Mover::new(cache.provider(), &endpoint_options(device), 1, len);
        Ok((Self(mover.map_err(|error| no_connection(&error))?), cache))
    }

    fn send(&mut self, key: Key, span: Span) -> io::Result<()> {
        self.0.write(key, span.ptr(), span.len_bytes()).map(drop).map_err(io::Error::other)
    }

    fn ready(&mut self, len: usize, seed: u64) -> io::Result<()> {
        sys::fill_pattern(&mut self.0.lane_mut(0)[..len], seed);
        Ok(())
    }

    fn receive(&mut self, key: Key, span: Span) -> io::Result<()> {
        // SAFETY: no Rust reference points into a span, and the caller holds the registration.
        unsafe { self.0.read_into(key, span.ptr(), span.len_bytes()) }.map_err(io::Error::other)
    }

    fn agrees(&self, span: Span) -> bool {
        span.equals(&self.0.lane(0)[..span.len_bytes()])
    }
}
