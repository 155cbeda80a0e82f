//! The helper: one privileged process that serves the eBPF monitor to all others.
//!
//! `pindown helper` has CAP_BPF and CAP_PERFMON, attaches the programs once, and hands each process
//! that connects descriptors of three maps of its own (a page it may read, a filter it may write, a
//! ring of records) and of the programs' links. A client is watched because it *is* the process that
//! connected: it cannot ask for another.
//!
//! The links keep the programs attached for as long as any client lives. So a helper that is killed,
//! or restarted, leaves its clients as coherent as before; what ends with it is enrolling new ones.

mod limits;
mod proto;
mod server;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pindown_core::MonitorError;

pub use limits::Limits;
pub use server::{HelperError, Server};

use self::proto::{Challenge, Hello, LONGEST, Welcome};
use crate::monitor::ebpf::{Client, DEFAULT_RING_BYTES, EbpfOptions, Service, SlotFds, Sponsor, Variant};
use crate::sys::fork::PrivateFd;
use crate::sys::seqpacket;

/// No answer takes longer, even with a hundred clients before.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the helper listens, unless `PINDOWN_HELPER` names another socket.
pub fn default_socket() -> PathBuf {
    std::env::var_os("PINDOWN_HELPER").map_or_else(|| "/run/pindown/helper.sock".into(), PathBuf::from)
}

const REMEDY: &str = "start `pindown helper` as root, or enable pindown-helper.socket";

fn unavailable(what: &'static str, source: io::Error) -> MonitorError {
    MonitorError::Unavailable { what, remedy: REMEDY, source: Some(source) }
}

/// Asks the helper at `path` to watch this process.
pub(crate) fn connect(path: &Path, options: &EbpfOptions) -> Result<Client, MonitorError> {
    let failed = |e| unavailable("the helper", e);
    let ring_bytes = options.ring_bytes.unwrap_or(DEFAULT_RING_BYTES) as u32;
    let mut met = meet(path, ring_bytes);
    // The helper does not wait long for a hello; this process may just not have run for a while.
    for _ in 1..TRIES {
        if met.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::TimedOut) {
            met = meet(path, ring_bytes);
        }
    }
    let client = met.map_err(failed)?;
    match options.variant {
        Some(wanted) if wanted != client.service.variant => {
            Err(failed(io::Error::other("it uses another variant")))
        }
        _ => Ok(client),
    }
}

const TRIES: u32 = 4;

fn meet(path: &Path, ring_bytes: u32) -> io::Result<Client> {
    let socket = seqpacket::connect(path)?;
    seqpacket::set_timeout(socket.as_fd(), PATIENCE)?;
    introduce(&socket, ring_bytes)?;
    let (welcome, fds) = be_welcomed(&socket)?;
    furnish(welcome, fds, socket)
}

fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it speaks another version")
}

fn introduce(socket: &OwnedFd, ring_bytes: u32) -> io::Result<()> {
    let mut buffer = [0u8; LONGEST];
    let got = seqpacket::receive(socket.as_fd(), &mut buffer)?;
    let message = &buffer[..got.len_bytes];
    let Some(Challenge { number }) = Challenge::decode(message) else {
        return Err(Welcome::decode(message).map_or_else(strange, |w| refused(&w))); // turned away at once
    };
    seqpacket::send(socket.as_fd(), &Hello { number, pid: 0, ring_bytes }.encode(), &[])
}

fn be_welcomed(socket: &OwnedFd) -> io::Result<(Welcome, VecDeque<OwnedFd>)> {
    let mut buffer = [0u8; LONGEST];
    let got = seqpacket::receive(socket.as_fd(), &mut buffer)?;
    let welcome = Welcome::decode(&buffer[..got.len_bytes]).ok_or_else(strange)?;
    match welcome.refusal {
        0 => Ok((welcome, got.fds.into())),
        _ => Err(refused(&welcome)),
    }
}

fn refused(welcome: &Welcome) -> io::Error {
    let why = io::Error::from_raw_os_error(welcome.refusal as i32);
    io::Error::new(why.kind(), format!("it refuses: {} ({why})", welcome.text))
}

fn furnish(welcome: Welcome, mut fds: VecDeque<OwnedFd>, socket: OwnedFd) -> io::Result<Client> {
    let hooks: Vec<(usize, String)> = welcome.text.lines().filter_map(hook_line).collect();
    if hooks.is_empty() || fds.len() <= 3 {
        return Err(strange()); // without links nothing would keep the programs attached
    }
    let mut next = || fds.pop_front().ok_or_else(strange);
    let maps = SlotFds {
        slot: welcome.slot,
        status: next()?,
        filter: next()?,
        ring: next()?,
        ring_bytes: welcome.ring_bytes as usize,
    };
    let keep = |fd| PrivateFd::new(fd).ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE));
    let links = fds.into_iter().map(keep).collect::<io::Result<Vec<_>>>()?;
    let variant = if welcome.variant == 0 { Variant::Fexit } else { Variant::Tracepoint };
    Client::new(
        maps,
        Service { variant, hooks },
        Sponsor::Helper { _connection: keep(socket)?, _links: links },
    )
}

fn hook_line(line: &str) -> Option<(usize, String)> {
    let (number, name) = line.split_once(' ')?;
    Some((number.parse().ok().filter(|n| *n < 16)?, name.to_owned()))
}
