//! Unix sockets that keep messages whole and carry descriptors and credentials. `unix(7)`, `cmsg(3)`.

use std::ffi::OsStr;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Most descriptors in one message.
const MOST_FDS: usize = 32;
const CONTROL_BYTES: usize = 512;

/// Who is at the other end, as the kernel says; the pid in this process's pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
}

/// One message.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) len_bytes: usize,
    pub(crate) fds: Vec<OwnedFd>,
    /// Who sent it, if [`want_credentials`] was called.
    pub(crate) sender: Option<Peer>,
}

fn check(rc: libc::c_int) -> io::Result<libc::c_int> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: a descriptor that the kernel just opened for us.
    check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn address(path: &Path) -> io::Result<libc::sockaddr_un> {
    let bytes = OsStr::as_bytes(path.as_os_str());
    // SAFETY: plain integers, for which zeroes are valid.
    let mut at: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    at.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if bytes.is_empty() || bytes.len() >= at.sun_path.len() || bytes.contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in at.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(at)
}

fn new_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) })
}

/// Listens at `path`, replacing a socket that nobody listens on. Anybody may connect.
pub(crate) fn listen(path: &Path) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    let at = address(path)?;
    if connect(path).is_err_and(|e| e.raw_os_error() == Some(libc::ECONNREFUSED)) {
        std::fs::remove_file(path)?;
    }
    let len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: `at` is a live sockaddr_un of the stated length.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const at).cast(), len) })?;
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    // SAFETY: no pointers.
    check(unsafe { libc::listen(socket.as_raw_fd(), 128) })?;
    Ok(socket)
}

/// Connects to `path`.
pub(crate) fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    let at = address(path)?;
    let len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: `at` is a live sockaddr_un of the stated length.
    check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const at).cast(), len) })?;
    Ok(socket)
}

/// Waits for a connection.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (none, flags) = (std::ptr::null_mut(), libc::SOCK_CLOEXEC);
    // SAFETY: null address: the peer's is not asked for.
    owned(unsafe { libc::accept4(listener.as_raw_fd(), none, std::ptr::null_mut(), flags) })
}

fn set_option<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is live and of the stated length.
    let rc = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const *value).cast(), len)
    };
    check(rc).map(drop)
}

/// No call on the socket waits longer.
pub(crate) fn set_timeout(socket: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    let value = libc::timeval {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_usec: limit.subsec_micros() as libc::suseconds_t,
    };
    set_option(socket, libc::SO_RCVTIMEO, &value)?;
    set_option(socket, libc::SO_SNDTIMEO, &value)
}

/// Each message received says who sent it.
pub(crate) fn want_credentials(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SO_PASSCRED, &1i32)
}

/// Who connected (`SO_PEERCRED`). Pid 0: not visible from this pid namespace.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `cred` and `len` are live; the kernel writes at most `len` bytes.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &raw mut len,
        )
    };
    check(rc).map(|_| Peer { pid: cred.pid as u32, uid: cred.uid })
}

/// Storage for control messages, aligned as they must be.
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

fn message(iov: &mut libc::iovec, control: &mut Control, control_bytes: usize) -> libc::msghdr {
    // SAFETY: plain integers and pointers, for which zeroes are valid.
    let mut m: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    m.msg_iov = iov;
    m.msg_iovlen = 1;
    m.msg_control = control.0.as_mut_ptr().cast();
    m.msg_controllen = control_bytes;
    m
}

/// Sends one message with copies of `fds`.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
    assert!(fds.len() <= MOST_FDS);
    let payload = size_of_val(fds) as u32;
    // SAFETY: both only compute sizes.
    let (space, len) = unsafe { (libc::CMSG_SPACE(payload) as usize, libc::CMSG_LEN(payload) as usize) };
    let mut control = Control([0; CONTROL_BYTES]);
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let m = message(&mut iov, &mut control, if fds.is_empty() { 0 } else { space });
    if !fds.is_empty() {
        // SAFETY: `control` is aligned and has room for `space` bytes (32 descriptors take 144), so
        // the first header and its data lie within it.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&m);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = len;
            std::ptr::copy_nonoverlapping(
                fds.as_ptr().cast::<u8>(),
                libc::CMSG_DATA(header),
                size_of_val(fds),
            );
        }
    }
    // SAFETY: `m` points to a live iovec and control buffer of the stated lengths.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &m, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives one message. Length 0: the other end is gone.
pub(crate) fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<Received> {
    let mut control = Control([0; CONTROL_BYTES]);
    let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut m = message(&mut iov, &mut control, CONTROL_BYTES);
    // SAFETY: `m` points to a live iovec and control buffer of the stated lengths.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut m, libc::MSG_CMSG_CLOEXEC) };
    if len < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut received = Received { len_bytes: len as usize, ..Received::default() };
    // SAFETY: the kernel filled `m`; the headers it wrote lie within `control`, which is live.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&m);
        while let Some(h) = header.as_ref() {
            take(h, &mut received);
            header = libc::CMSG_NXTHDR(&m, header);
        }
    }
    match m.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) {
        0 => Ok(received),
        _ => Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
    }
}

/// # Safety
///
/// `h` heads a control message that the kernel wrote, with its data behind it.
unsafe fn take(h: &libc::cmsghdr, received: &mut Received) {
    // SAFETY: computes an address inside the message and a size; reads what the kernel wrote there.
    unsafe {
        let data = libc::CMSG_DATA(h);
        let len = h.cmsg_len - libc::CMSG_LEN(0) as usize;
        match (h.cmsg_level, h.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                let fds = (0..len / size_of::<RawFd>()).map(|i| data.cast::<RawFd>().add(i).read_unaligned());
                received.fds.extend(fds.map(|fd| OwnedFd::from_raw_fd(fd)));
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if len >= size_of::<libc::ucred>() => {
                let cred = data.cast::<libc::ucred>().read_unaligned();
                received.sender = Some(Peer { pid: cred.pid as u32, uid: cred.uid });
            }
            _ => {}
        }
    }
}

/// Waits until one of `fds` is readable or hung up; which of them are. `None`: for ever.
pub(crate) fn wait(fds: &[BorrowedFd<'_>], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polls: Vec<_> =
        fds.iter().map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    let millis = limit.map_or(-1, |l| l.as_millis().min(i32::MAX as u128) as i32);
    // SAFETY: `polls` is a live array of the stated length.
    let rc = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, millis) };
    match check(rc) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(polls.iter().map(|p| p.revents != 0).collect()),
    }
}

/// The listening socket that systemd passes (`sd_listen_fds(3)`), if it did.
pub(crate) fn from_systemd() -> Option<OwnedFd> {
    let says = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let ours = says("LISTEN_PID") == Some(std::process::id()) && says("LISTEN_FDS") == Some(1);
    // SAFETY: descriptor 3 was opened for this process by systemd, which says so in the environment;
    // the helper asks once, at its start.
    ours.then(|| unsafe { OwnedFd::from_raw_fd(3) })
}
