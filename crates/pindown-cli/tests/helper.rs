//! `pindown helper` and its clients, as processes. The test binary is also the client: started again
//! with `PINDOWN_TEST_CLIENT`. Without CAP_BPF and CAP_PERFMON each test says so and passes.
#![cfg(feature = "ebpf")]

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use pindown::monitor::ebpf::{EbpfMonitor, EbpfOptions, Loader};
use pindown::{Access, Monitor, Notifier, PageRange, Subscription};

/// The program just built; in a guest, the one that was carried there.
fn pindown() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_pindown"));
    if built.exists() { built } else { "pindown".into() }
}

/// A directory that any user may enter.
fn open_dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("pindown-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    dir
}

struct Helper {
    child: Child,
    socket: PathBuf,
}

impl Helper {
    fn start(name: &str, args: &[&str]) -> Option<Self> {
        Self::start_at(&open_dir(name).join("helper.sock"), args)
    }

    fn start_at(socket: &Path, args: &[&str]) -> Option<Self> {
        let mut command = Command::new(pindown());
        command.arg("helper").arg("--socket").arg(socket).args(args).stdout(Stdio::piped());
        Self::serving(command, socket)
    }

    /// Waits until it serves at `socket`.
    fn serving(mut command: Command, socket: &Path) -> Option<Self> {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.contains("serving") {
            return Some(Self { child, socket: socket.to_owned() });
        }
        assert_eq!(child.wait().unwrap().code(), Some(3), "{line}");
        println!("skipped: the helper cannot load its programs here");
        None
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(dir) = self.socket.parent() {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// A client process: says "watching" or why not, then does what each line it is sent asks for.
struct Client {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Client {
    fn start(socket: &Path, uid: Option<u32>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_client", "--nocapture"]).env("PINDOWN_TEST_CLIENT", socket);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        while self.said.read_line(&mut line).unwrap() > 0 {
            if let Some(text) = line.split_once("client: ") {
                return text.1.trim().to_owned();
            }
            line.clear();
        }
        "gone".to_owned()
    }

    fn ask(&mut self, what: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
        self.hear()
    }

    fn look(&mut self) -> String {
        self.ask("look")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stands for a socket: the client loads the programs itself.
const OWN: &str = "own";

fn through(socket: &Path) -> EbpfOptions {
    let mut options = EbpfOptions::default();
    options.loader = match socket == Path::new(OWN) {
        true => Loader::Own,
        false => Loader::Helper(socket.to_owned()),
    };
    options
}

/// Not a test by itself: what [`Client`] runs.
#[test]
fn a_client() {
    let Some(socket) = std::env::var_os("PINDOWN_TEST_CLIENT") else { return };
    let monitor = match EbpfMonitor::open(&through(Path::new(&socket))) {
        Ok(monitor) => monitor,
        Err(e) => return println!("client: refused: {e}: {:?}", std::error::Error::source(&e)),
    };
    match monitor.start(Notifier::detached()) {
        Ok(()) => println!("client: watching"),
        Err(e) => return println!("client: {e}"),
    }
    for line in std::io::stdin().lines() {
        match line.as_deref() {
            Ok("fork") => println!("client: {}", if leave_a_child() { "forked" } else { "no fork" }),
            _ => println!("client: {}", if sees_munmap(&monitor) { "seen" } else { "MISSED" }),
        }
    }
}

/// A child that outlives its parent.
fn leave_a_child() -> bool {
    // SAFETY: the child makes async-signal-safe calls alone.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no pointers; ends the child without running anything of the parent's.
        unsafe {
            libc::sleep(30);
            libc::_exit(0);
        }
    }
    child > 0
}

fn sees_munmap(monitor: &EbpfMonitor) -> bool {
    (0..100).all(|_| {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, prot, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: the page just mapped.
        unsafe { at.cast::<u8>().write_volatile(1) };
        let range = PageRange::covering(at as usize, 4096).unwrap();
        let subscribed = monitor.subscribe(range, Access::READ_WRITE).unwrap();
        let before = monitor.generation().unwrap().load(Ordering::Acquire);
        // SAFETY: the page just mapped, to which there are no references.
        unsafe { libc::munmap(at, 4096) };
        let after = monitor.generation().unwrap().load(Ordering::Acquire);
        monitor.unsubscribe(range);
        subscribed == Subscription::Events && after != before
    })
}

/// A listening socket as systemd makes it.
fn listening(path: &Path) -> OwnedFd {
    // SAFETY: no pointers; the descriptor is new.
    let fd = unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0)) };
    let (at, len) = address(path);
    // SAFETY: a live address of the stated length.
    assert_eq!(unsafe { libc::bind(fd.as_raw_fd(), (&raw const at).cast(), len) }, 0);
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::listen(fd.as_raw_fd(), 16) }, 0);
    fd
}

/// As pindown-helper.socket does it: the socket is descriptor 3 (`sd_listen_fds(3)`).
#[test]
fn a_socket_of_systemd_is_served() {
    let dir = open_dir("activated");
    let socket = dir.join("s");
    let listener = listening(&socket);
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" helper --socket /nowhere/at/all"]);
    command.arg(pindown()).stdout(Stdio::piped());
    // SAFETY: dup2 is async-signal-safe, and the listener lives until the child was started.
    unsafe {
        let fd = listener.as_raw_fd();
        command.pre_exec(move || match libc::dup2(fd, 3) {
            3 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let Some(_helper) = Helper::serving(command, &socket) else { return };
    drop(listener);
    assert_eq!(Client::start(&socket, None).hear(), "watching");
}

#[test]
fn a_plain_user_is_served_and_a_killed_helper_leaves_it_coherent() {
    let Some(mut helper) = Helper::start("plain", &[]) else { return };
    // SAFETY: no arguments, always succeeds.
    let uid = (unsafe { libc::getuid() } == 0).then_some(65534);
    let mut client = Client::start(&helper.socket, uid);
    assert_eq!(client.hear(), "watching");
    assert_eq!(client.look(), "seen");
    helper.kill();
    assert_eq!(client.look(), "seen", "the client's links keep the programs attached");
    let mut late = Client::start(&helper.socket, uid);
    assert!(late.hear().starts_with("refused"), "nobody serves, and the client is told");
    let again = Helper::start_at(&helper.socket, &[]).expect("it started before");
    let mut new = Client::start(&helper.socket, uid);
    assert_eq!(new.hear(), "watching");
    assert_eq!((client.look(), new.look()), ("seen".to_owned(), "seen".to_owned()));
    drop(again);
}

#[test]
fn a_killed_clients_place_is_free_again() {
    let Some(helper) = Helper::start("place", &["--max-clients", "1"]) else { return };
    let mut first = Client::start(&helper.socket, None);
    assert_eq!(first.hear(), "watching");
    let mut second = Client::start(&helper.socket, None);
    let refusal = second.hear();
    assert!(refusal.contains("too many clients"), "{refusal}");
    drop(first); // SIGKILL
    let mut said = String::new();
    let served = soon(|| {
        said = Client::start(&helper.socket, None).hear();
        said == "watching"
    });
    assert!(served, "{said}");
}

#[test]
fn a_hundred_clients_at_once() {
    let Some(helper) = Helper::start("hundred", &[]) else { return };
    let mut clients: Vec<_> = (0..100).map(|_| Client::start(&helper.socket, None)).collect();
    for client in &mut clients {
        assert_eq!(client.hear(), "watching");
    }
    for client in &mut clients {
        assert_eq!(client.look(), "seen");
    }
}

fn address(socket: &Path) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: plain integers, for which zeroes are valid.
    let mut at: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    at.sun_family = libc::AF_UNIX as u16;
    let path = socket.as_os_str().as_encoded_bytes();
    at.sun_path.iter_mut().zip(path).for_each(|(to, from)| *to = *from as libc::c_char);
    (at, size_of::<libc::sockaddr_un>() as libc::socklen_t)
}

/// A connection that says what it likes.
fn raw_connection(socket: &Path) -> OwnedFd {
    // SAFETY: no pointers; the descriptor is new.
    let fd = unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0)) };
    let (at, len) = address(socket);
    // SAFETY: a live address of the stated length.
    assert_eq!(unsafe { libc::connect(fd.as_raw_fd(), (&raw const at).cast(), len) }, 0);
    fd
}

fn say(fd: &OwnedFd, bytes: &[u8]) {
    // SAFETY: a live slice.
    unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
}

fn listen_to(fd: &OwnedFd) -> Vec<u8> {
    let mut buffer = vec![0u8; 2048];
    // SAFETY: a live buffer of the stated length.
    let len = unsafe { libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    buffer.truncate(len.max(0) as usize);
    buffer
}

#[test]
fn garbage_and_silence_hurt_nobody() {
    let Some(helper) = Helper::start("garbage", &[]) else { return };
    let silent: Vec<_> = (0..20).map(|_| raw_connection(&helper.socket)).collect();
    let mut state = 0x1234_5678_9abc_def1_u64;
    for len in [0, 1, 7, 8, 23, 24, 25, 1000, 1024, 1025, 60_000] {
        let fd = raw_connection(&helper.socket);
        let junk: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        })
        .take(len)
        .collect();
        say(&fd, &junk);
    }
    let mut client = Client::start(&helper.socket, None);
    assert_eq!(client.hear(), "watching");
    assert_eq!(client.look(), "seen");
    let answers: Vec<_> = silent.iter().map(|fd| (listen_to(fd), listen_to(fd))).collect();
    assert!(
        answers.iter().all(|(_, refusal)| is_refusal(refusal, libc::ETIMEDOUT)),
        "silence is not waited for"
    );
}

fn is_refusal(message: &[u8], errno: i32) -> bool {
    message.get(8..12) == Some(&(errno as u32).to_le_bytes())
}

#[test]
fn another_process_cannot_be_asked_for() {
    let Some(helper) = Helper::start("other", &[]) else { return };
    let hello = |pid: u32, spoil: u8| {
        let fd = raw_connection(&helper.socket);
        let mut message = listen_to(&fd); // magic and number, to be repeated
        message[8] ^= spoil;
        message.extend(pid.to_le_bytes());
        message.extend(4096u32.to_le_bytes());
        say(&fd, &message);
        listen_to(&fd)
    };
    assert!(is_refusal(&hello(1, 0), libc::EPERM), "init's memory is none of our business");
    assert!(is_refusal(&hello(0, 1), libc::EBADMSG), "a number that was not given");
    assert!(is_refusal(&hello(std::process::id(), 0), 0), "its own pid is fine");
}

/// A child that inherited the connection says hello in its parent's name.
#[test]
fn a_connection_cannot_be_used_by_another_process() {
    let Some(helper) = Helper::start("passed", &[]) else { return };
    let fd = raw_connection(&helper.socket);
    let mut message = listen_to(&fd);
    message.extend([0; 4]);
    message.extend(4096u32.to_le_bytes());
    // SAFETY: the child only makes async-signal-safe calls.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a live slice; _exit runs nothing of the parent's.
        unsafe {
            libc::send(fd.as_raw_fd(), message.as_ptr().cast(), message.len(), 0);
            libc::_exit(0);
        }
    }
    assert!(is_refusal(&listen_to(&fd), libc::EPERM));
    let mut status = 0;
    // SAFETY: reaps the child just made.
    unsafe { libc::waitpid(child, &mut status, 0) };
}

/// Ids of the BPF links that a process holds.
fn link_ids(pid: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return Vec::new() };
    let texts = entries.flatten().filter_map(|e| std::fs::read_to_string(e.path()).ok());
    texts.filter_map(|t| t.lines().find_map(|l| l.strip_prefix("link_id:")?.trim().parse().ok())).collect()
}

/// Whether the kernel still has a link of this id (`BPF_LINK_GET_FD_BY_ID`, CAP_SYS_ADMIN).
fn link_exists(id: u32) -> bool {
    let attr = [id, 0, 0, 0];
    // SAFETY: a live attribute of the stated length.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, 30, attr.as_ptr(), size_of_val(&attr)) };
    if fd >= 0 {
        // SAFETY: the descriptor just opened.
        unsafe { libc::close(fd as i32) };
    }
    fd >= 0
}

#[test]
fn nothing_stays_attached_when_helper_and_clients_were_killed() {
    let Some(mut helper) = Helper::start("attached", &[]) else { return };
    let ids = link_ids(helper.child.id());
    assert!(!ids.is_empty());
    if !link_exists(ids[0]) {
        return println!("skipped: looking at links needs CAP_SYS_ADMIN");
    }
    let mut client = Client::start(&helper.socket, None);
    assert_eq!(client.hear(), "watching");
    helper.kill();
    assert!(ids.iter().all(|id| link_exists(*id)), "the client holds them");
    drop(client); // SIGKILL
    assert!(soon(|| !ids.iter().any(|id| link_exists(*id))));
}

#[test]
fn nothing_stays_attached_when_a_process_with_its_own_programs_was_killed() {
    let mut client = Client::start(Path::new(OWN), None);
    let said = client.hear();
    if said != "watching" {
        return println!("skipped: {said}");
    }
    let ids = link_ids(client.child.id());
    assert!(!ids.is_empty());
    if !link_exists(ids[0]) {
        return println!("skipped: looking at links needs CAP_SYS_ADMIN");
    }
    assert_eq!(client.ask("fork"), "forked");
    assert!(ids.iter().all(|id| link_exists(*id)));
    drop(client); // SIGKILL; its child lives on
    assert!(soon(|| !ids.iter().any(|id| link_exists(*id))));
}

fn soon(mut happened: impl FnMut() -> bool) -> bool {
    (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        happened()
    })
}
