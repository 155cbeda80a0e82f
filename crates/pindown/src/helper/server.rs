//! The serving half: a thread a connection, so that no client waits for another.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pindown_core::MonitorError;

use super::limits::{Limits, Seat, Users};
use super::proto::{Challenge, Hello, LONGEST, Welcome};
use crate::monitor::ebpf::{Engine, RING_BYTES, SlotFds, Variant};
use crate::sys::bpf::pidfd_open;
use crate::sys::seqpacket::{self, Peer};

/// Why the helper does not start, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HelperError {
    /// The programs cannot be loaded.
    #[error("the BPF programs cannot be loaded")]
    Programs(#[from] MonitorError),
    /// The socket cannot be made.
    #[error("no socket at {path}: {source}; its directory must exist and be writable")]
    Socket {
        /// Where.
        path: String,
        /// The refusing call's error.
        source: io::Error,
    },
    /// Waiting for connections failed.
    #[error("no connection can be accepted: {0}")]
    Accept(io::Error),
}

/// The helper. Its programs stay attached for as long as it or a client lives.
#[derive(Debug)]
pub struct Server {
    listener: OwnedFd,
    service: Arc<ServiceDesk>,
}

#[derive(Debug)]
struct ServiceDesk {
    engine: Engine,
    limits: Limits,
    users: Arc<Users>,
}

/// What a client gets: its maps, until it or its connection is gone.
struct Enrolled<'a> {
    desk: &'a ServiceDesk,
    maps: SlotFds,
}

impl Server {
    /// Loads the programs and listens: on the socket that systemd passed, else at `path`.
    ///
    /// # Errors
    ///
    /// [`HelperError`]: CAP_BPF and CAP_PERFMON are needed for the programs, and write access to the
    /// directory of `path`.
    pub fn start(path: &Path, variant: Option<Variant>, limits: Limits) -> Result<Self, HelperError> {
        Self::listen(path, Engine::new(variant, None)?, limits)
    }

    /// [`start`](Self::start) with programs left out, to show what they are for.
    #[cfg(feature = "test-hooks")]
    #[doc(hidden)]
    pub fn start_without(path: &Path, limits: Limits, hidden: &str) -> Result<Self, HelperError> {
        Self::listen(path, Engine::new(None, Some(hidden))?, limits)
    }

    fn listen(path: &Path, engine: Engine, limits: Limits) -> Result<Self, HelperError> {
        let socket = |source| HelperError::Socket { path: path.display().to_string(), source };
        let listener =
            seqpacket::from_systemd().map_or_else(|| seqpacket::listen(path), Ok).map_err(socket)?;
        let service = Arc::new(ServiceDesk { engine, limits, users: Arc::default() });
        Ok(Self { listener, service })
    }

    /// The variant in use.
    pub fn variant(&self) -> Variant {
        self.service.engine.variant()
    }

    /// Serves until accepting fails for good.
    pub fn serve(&self) -> Result<(), HelperError> {
        loop {
            match seqpacket::accept(self.listener.as_fd()) {
                Ok(socket) => self.receive(socket),
                Err(e) if is_passing(&e) => std::thread::sleep(Duration::from_millis(10)),
                Err(e) => return Err(HelperError::Accept(e)),
            }
        }
    }

    /// A thread for whoever has a seat; others are turned away at once.
    fn receive(&self, socket: OwnedFd) {
        let Ok(peer) = seqpacket::peer(socket.as_fd()) else { return };
        let Some(seat) = self.service.users.seat(peer.uid, &self.service.limits) else {
            let _ = seqpacket::set_timeout(socket.as_fd(), Duration::from_millis(1));
            return refuse(&socket, libc::EUSERS, "too many clients");
        };
        let desk = self.service.clone();
        let thread = std::thread::Builder::new().name("pindown-client".into()).stack_size(128 << 10);
        let spawned = thread.spawn(move || desk.attend(&socket, peer, seat));
        if let Err(e) = spawned {
            tracing::warn!("helper: no thread for a client: {e}");
        }
    }
}

/// Errors of one connection, or of a moment.
fn is_passing(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EINTR | libc::ECONNABORTED | libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS)
    )
}

fn refuse(socket: &OwnedFd, errno: i32, why: &str) {
    let _ = seqpacket::send(socket.as_fd(), &Welcome::refuse(errno, why).encode(), &[]);
}

/// A refusal: errno and reason.
type Refusal = (i32, &'static str);

impl ServiceDesk {
    fn attend(&self, socket: &OwnedFd, peer: Peer, _seat: Seat) {
        match self.enrol(socket, peer) {
            Ok((client, pidfd)) => match self.hand_over(socket, &client.maps) {
                Ok(()) => stay(socket.as_fd(), pidfd.as_fd()),
                Err(e) => tracing::debug!("helper: {peer:?} left early: {e}"),
            },
            Err((errno, why)) => {
                tracing::debug!("helper: {peer:?} refused: {why}");
                refuse(socket, errno, why);
            }
        }
    }

    fn enrol(&self, socket: &OwnedFd, peer: Peer) -> Result<(Enrolled<'_>, OwnedFd), Refusal> {
        let (pidfd, hello) = self.identify(socket, peer)?;
        if hello.pid != 0 && hello.pid != peer.pid {
            return Err((libc::EPERM, "a client is watched itself, not another process"));
        }
        let ring = (hello.ring_bytes as usize).clamp(*RING_BYTES.start(), *RING_BYTES.end());
        let ring = ring.min(self.limits.ring_bytes).next_power_of_two();
        let maps = self.engine.enrol(pidfd.as_fd(), ring).map_err(|e| match e.raw_os_error() {
            Some(libc::ESRCH) => (libc::ESRCH, "the process ended or replaced its memory"),
            Some(libc::EUSERS) => (libc::EUSERS, "too many monitors in one process"),
            other => (other.unwrap_or(libc::EIO), "the kernel refuses the maps"),
        })?;
        Ok((Enrolled { desk: self, maps }, pidfd))
    }

    /// The process that connected, pinned by a pidfd. The number it repeats is stamped by the kernel
    /// with its sender; if that is the pid that the pidfd was opened for, and the pidfd's process is
    /// still alive, then the pid was not given to another in between: they are one process.
    fn identify(&self, socket: &OwnedFd, peer: Peer) -> Result<(OwnedFd, Hello), Refusal> {
        if peer.pid == 0 {
            return Err((libc::ESRCH, "the process is not visible from the helper's pid namespace"));
        }
        let gone = |_| (libc::ESRCH, "the process ended");
        let pidfd = pidfd_open(peer.pid).map_err(gone)?;
        let fd = socket.as_fd();
        let limit = Duration::from_millis(self.limits.hello_ms);
        let number = random();
        let sent = seqpacket::set_timeout(fd, limit)
            .and_then(|()| seqpacket::want_credentials(fd))
            .and_then(|()| seqpacket::send(fd, &Challenge { number }.encode(), &[]));
        sent.map_err(gone)?;
        let mut buffer = [0u8; LONGEST];
        let got = seqpacket::receive(fd, &mut buffer).map_err(|_| (libc::ETIMEDOUT, "no hello in time"))?;
        let hello = Hello::decode(&buffer[..got.len_bytes]).filter(|h| h.number == number);
        let hello = hello.ok_or((libc::EBADMSG, "that is not a hello of this version"))?;
        let dead = seqpacket::wait(&[pidfd.as_fd()], Some(Duration::ZERO)).map_or(true, |ready| ready[0]);
        if got.sender != Some(peer) || dead {
            return Err((libc::EPERM, "who says hello is not who connected"));
        }
        Ok((pidfd, hello))
    }

    fn hand_over(&self, socket: &OwnedFd, maps: &SlotFds) -> io::Result<()> {
        let links = self.engine.links();
        let mut fds: Vec<RawFd> =
            vec![maps.status.as_raw_fd(), maps.filter.as_raw_fd(), maps.ring.as_raw_fd()];
        fds.extend(links.iter().map(crate::sys::fork::PrivateFd::raw));
        let lines = self.engine.hooks().into_iter().map(|(number, name)| format!("{number} {name}\n"));
        let welcome = Welcome {
            refusal: 0,
            slot: maps.slot,
            ring_bytes: maps.ring_bytes as u32,
            variant: u32::from(self.engine.variant() == Variant::Tracepoint),
            text: lines.collect(),
        };
        seqpacket::send(socket.as_fd(), &welcome.encode(), &fds)
    }
}

/// Until the connection or the process is gone. What a client says now is not listened to: one that
/// talks is gone.
fn stay(socket: BorrowedFd<'_>, pidfd: BorrowedFd<'_>) {
    while let Ok(ready) = seqpacket::wait(&[socket, pidfd], None) {
        if ready.contains(&true) {
            return;
        }
    }
}

impl Drop for Enrolled<'_> {
    fn drop(&mut self) {
        if let Err(e) = self.desk.engine.release(self.maps.slot) {
            tracing::warn!("helper: slot {} could not be released: {e}", self.maps.slot);
        }
    }
}

/// A number that a client cannot guess before it is told.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
