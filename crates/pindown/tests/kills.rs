//! kill -9 at any moment leaves nothing: the next process of the same user has the whole limit again, a
//! child survives its parent and a parent its child. 30 are killed, 300 with `PINDOWN_LONG`.
#![cfg(all(feature = "io-uring", feature = "uffd"))]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use pindown::provider::io_uring::{Mover, UringProvider};
use pindown::{Access, Builder, MonitorChoice, PAGE_SIZE};
use support::child::{again, fork, reap_within, role};
use support::moving::Moving;
use support::{Map, become_plain_user};

const TEST: &str = "whoever_is_killed_leaves_nothing";
/// `ulimit -l` of those that are killed, in a user of their own where we are root.
const LIMIT_BYTES: u64 = 8 << 20;
/// Registered at once; the rest is for the rings themselves, which newer kernels charge too.
const MOST_BYTES: usize = 7 << 20;

#[test]
fn whoever_is_killed_leaves_nothing() {
    match role().as_deref() {
        None => supervise(),
        Some("busy") => busy(),
        Some(role) => panic!("{role}"),
    }
}

fn supervise() {
    let files_before = of_pindown_in_shm();
    let long = std::env::var_os("PINDOWN_LONG").is_some();
    let kills = if long { 300 } else { 30 };
    let (mut seed, mut slowest) = (0x9e37_79b9_7f4a_7c15_u64, Duration::ZERO);
    for n in 0..kills {
        let mut victim = Victim::start();
        let started = Instant::now();
        match victim.hear().as_str() {
            "all of it" => slowest = slowest.max(started.elapsed()),
            skip => return println!("{skip}"),
        }
        let survivor = victim.hear();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_micros(seed >> 33 & 0xffff)); // up to 66 ms
        victim.end(n % 2 == 0, survivor.parse().expect("its child's pid"));
    }
    assert_eq!(of_pindown_in_shm(), files_before);
    println!("{kills} killed; the slowest successor had the whole limit after {slowest:?}");
}

struct Victim {
    process: Child,
    lines: BufReader<ChildStdout>,
    heard_bytes: usize,
}

impl Victim {
    fn start() -> Self {
        let mut process = again(TEST, "busy").stdout(Stdio::piped()).spawn().expect("this binary starts");
        let lines = BufReader::new(process.stdout.take().expect("piped"));
        Self { process, lines, heard_bytes: 0 }
    }

    /// The next line that is not the test harness's. Both processes say much: silence is a hang.
    fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(!self.lines.buffer().is_empty() || self.is_readable(), "silent for a minute");
            let bytes = self.lines.read_line(&mut line).expect("text");
            assert_ne!(bytes, 0, "it ended: {:?}", self.process.wait());
            self.heard_bytes += bytes;
            if let Some(said) = line.trim_end().rsplit_once('#') {
                return said.1.to_owned();
            }
        }
    }

    fn is_readable(&self) -> bool {
        let mut wanted =
            libc::pollfd { fd: self.lines.get_ref().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd.
        unsafe { libc::poll(&mut wanted, 1, 60_000) == 1 }
    }

    /// What was said and not yet heard.
    fn unheard_bytes(&self) -> usize {
        let mut in_pipe: libc::c_int = 0;
        // SAFETY: FIONREAD fills one int.
        let rc = unsafe { libc::ioctl(self.lines.get_ref().as_raw_fd(), libc::FIONREAD, &mut in_pipe) };
        assert_eq!(rc, 0);
        in_pipe as usize + self.lines.buffer().len()
    }

    /// Kills it or its child first; the other must get on before it is killed too.
    fn end(&mut self, parent_first: bool, child: i32) {
        let parent = self.process.id() as i32;
        let (first, survivor) = if parent_first { (parent, child) } else { (child, parent) };
        kill(first);
        if parent_first {
            self.process.wait().expect("our child");
        }
        let name = if survivor == parent { "parent" } else { "child" };
        let (before, mut transfers) = (self.heard_bytes + self.unheard_bytes(), 0);
        while transfers < 20 {
            let said = self.hear();
            assert_ne!(said, "wrong");
            transfers += u32::from(said == name && self.heard_bytes > before);
        }
        kill(survivor);
        if !parent_first {
            self.process.wait().expect("our child");
        }
    }
}

fn kill(process: i32) {
    // SAFETY: a process that this test started.
    assert_eq!(unsafe { libc::kill(process, libc::SIGKILL) }, 0, "{}", std::io::Error::last_os_error());
}

/// What is in `/dev/shm`, but for what others have there.
fn of_pindown_in_shm() -> Vec<String> {
    let names = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = names.filter_map(|f| f.file_name().into_string().ok());
    names.filter(|n| n.contains("pindown")).collect()
}

/// Registers all it may, says so, and then transfers with a child of its own that does the same, until killed.
fn busy() -> ! {
    become_user_of_its_own();
    let memory = vec![1u8; MOST_BYTES];
    match all_of_it(&memory) {
        Ok(()) => say("all of it"),
        Err(why) => {
            say(&format!("skipped: {why}"));
            std::process::exit(0);
        }
    }
    let child = fork(|| transfer("child"));
    say(&child.to_string());
    std::thread::spawn(move || reap_within(child, Duration::MAX));
    transfer("parent")
}

fn become_user_of_its_own() {
    // SAFETY: reads a number.
    if unsafe { libc::geteuid() } != 0 {
        return become_plain_user(LIMIT_BYTES);
    }
    let limit = libc::rlimit { rlim_cur: LIMIT_BYTES, rlim_max: LIMIT_BYTES };
    // SAFETY: plain system calls on this process; the pointer is to a live rlimit.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit), 0);
        assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
        assert_eq!(libc::setresgid(65531, 65531, 65531), 0);
        assert_eq!(libc::setresuid(65531, 65531, 65531), 0);
        // A process that changed its user may not read its own /proc files otherwise.
        assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 1), 0);
    }
}

/// The kernel takes rings apart after their process is gone, and others of the user may be in the way.
fn all_of_it(memory: &[u8]) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let error = match register(memory) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let limit = error.contains("Memlock") || error.contains("annot allocate");
        assert!(!limit || start.elapsed() < Duration::from_secs(20), "charged for the dead: {error}");
        if !limit {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn register(memory: &[u8]) -> Result<(), String> {
    let text = |e: &dyn std::error::Error| e.to_string();
    let mut mover = Mover::new(1, PAGE_SIZE).map_err(|e| text(&e))?;
    let provider = UringProvider::builder().slots(8).on(mover.ring()).map_err(|e| text(&e))?;
    let builder = Builder::new(provider).monitor(MonitorChoice::Uffd).max_bytes(LIMIT_BYTES);
    let cache = builder.build().map_err(|e| text(&e))?;
    // SAFETY: nothing is received.
    let all = unsafe { cache.acquire(memory.as_ptr(), memory.len(), Access::READ) }.map_err(|e| text(&e))?;
    let sent = mover.write_fixed(all.key(), memory.as_ptr(), PAGE_SIZE).map_err(|e| text(&e))?;
    assert_eq!(sent, &memory[..PAGE_SIZE]);
    drop(all);
    cache.close(Duration::from_secs(10)).map_err(|e| text(&e))
}

/// Says its name after each transfer, or `wrong`; children of its own come and go meanwhile.
fn transfer(name: &str) -> ! {
    let mut moving = Moving::new().expect("as before");
    let stays = Map::filled(8, 1);
    for n in 0u64.. {
        let comes = vec![n as u8; 40 * PAGE_SIZE];
        let right = moving.send(comes.as_ptr(), 16 * PAGE_SIZE) == comes[..16 * PAGE_SIZE]
            && moving.send(stays.ptr(), stays.len()) == stays.bytes();
        stays.fill(n as u8);
        say(if right { name } else { "wrong" });
        if n % 32 == 7 {
            // Killed with the rest of its pipe: by SIGPIPE at the latest.
            let _ = Command::new("/bin/true").status();
        }
    }
    unreachable!()
}

/// One line, in one write: two processes share the pipe.
fn say(what: &str) {
    let mut out = std::io::stdout();
    // Nobody listens any more: the test is over.
    if out.write_all(format!("#{what}\n").as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// The same for a process that has no time to get far: killed while it starts, registers, or ends.
#[test]
fn the_start_and_the_end_are_no_exception() {
    const NAME: &str = "the_start_and_the_end_are_no_exception";
    if role().is_some() {
        become_user_of_its_own();
        let memory = vec![1u8; MOST_BYTES];
        let outcome = all_of_it(&memory);
        say(if outcome.is_ok() { "done" } else { "cannot" });
        return;
    }
    for n in 0..20u64 {
        let mut process = again(NAME, "short").stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(n * 3_000));
        process.kill().unwrap();
        process.wait().unwrap();
    }
    let last = again(NAME, "short").output().unwrap();
    assert!(last.status.success(), "{}", String::from_utf8_lossy(&last.stderr));
}
