//! [`Engine`]: a provider together with a way to move bytes through what it registers.

mod uring;
mod verbs;

pub(crate) use uring::UringEngine;
pub(crate) use verbs::VerbsEngine;
pub(crate) use verbs::{cache as verbs_cache, endpoint_options, no_connection};

use std::io;

use pindown::{Cache, Provider};

use crate::exit::CliError;
use crate::monitors::MonitorName;
use crate::sys::Span;

/// The key of an engine's registrations.
pub(crate) type Key<E> = <<E as Engine>::Provider as Provider>::Key;
/// An engine's registration.
pub(crate) type Mr<E> = <<E as Engine>::Provider as Provider>::Mr;

/// Which device of the provider. Only verbs has several.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct DeviceArgs {
    /// The verbs device, e.g. mlx5_0 or rxe0; the first with an active port by default.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Index into its port's GID table; a RoCE v2 address by default.
    #[arg(long, value_name = "N")]
    pub(crate) gid_index: Option<u8>,
}

impl DeviceArgs {
    /// As given on a command line.
    pub(crate) fn to_words(&self) -> Vec<String> {
        let device = self.device.iter().flat_map(|name| ["--device".to_owned(), name.clone()]);
        let gid = self.gid_index.iter().flat_map(|n| ["--gid-index".to_owned(), n.to_string()]);
        device.chain(gid).collect()
    }
}

/// Moves bytes between a registered buffer and memory of its own.
pub(crate) trait Engine: Sized + Send {
    /// Who registers.
    type Provider: Provider;

    /// An engine that moves `lane_bytes` at a time, with a cache over its provider.
    fn open(
        monitor: MonitorName,
        device: &DeviceArgs,
        lane_bytes: usize,
    ) -> Result<(Self, Cache<Self::Provider>), CliError>;
    /// Sends all bytes of `span`, registered under `key`, into the engine's own memory.
    fn move_out(&mut self, key: Key<Self>, span: Span) -> io::Result<()>;
    /// Receives all bytes of `span` from the engine's own memory. The caller holds the
    /// registration.
    fn move_in(&mut self, key: Key<Self>, span: Span) -> io::Result<()>;
    /// The engine's own memory, as long as `open` was told at least.
    fn lane(&self) -> &[u8];
    /// The same, to fill.
    fn lane_mut(&mut self) -> &mut [u8];
}
