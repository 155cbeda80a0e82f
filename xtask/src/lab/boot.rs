//! One boot of qemu: three serial ports carry stdout, stderr and the exit status.

use super::kernel::{MODULES_CPIO, VMLINUZ};
use super::userland::USERLAND_CPIO;
use super::workdir::WorkDir;
use super::{Job, Lab};
use crate::error::{At, Result};
use crate::proc;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Files in the work directory, where qemu runs.
const CONSOLE: &str = "console";
const STATUS: &str = "status";
const INITRD: &str = "initrd";

/// The machine.
pub(crate) struct Boot {
    pub(crate) memory_mib: u32,
    pub(crate) cpus: u32,
    pub(crate) timeout: Duration,
    /// More words for the kernel's command line.
    pub(crate) append: Vec<String>,
    /// A socket for a gdb stub; the guest waits for `continue`.
    pub(crate) gdb: Option<PathBuf>,
    /// The guest's clocks advance a nanosecond an instruction. For one processor.
    pub(crate) count: bool,
}

/// How a boot ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The command ended; 128 + N for signal N, as a shell has it.
    Exited(i32),
    /// The guest could not set up what the command needs.
    SetupFailed(String),
    /// qemu ended without a status; `silent` if no line of the command was seen.
    Crashed { console: String, silent: bool },
    /// Killed when its time was up.
    TimedOut { console: String },
}

impl Boot {
    /// Boots; a panic before the first line of output gets a second chance, since about one
    /// emulated boot in sixty panics while the kernel patches its own code.
    pub(crate) fn run(&self, lab: &Lab, job: &Job) -> Result<Outcome> {
        let outcome = self.run_once(lab, job)?;
        match &outcome {
            Outcome::Crashed { console, silent: true } if console.contains("Kernel panic") => {
                eprintln!("lab: the guest panicked before its first line; booting once more");
                self.run_once(lab, job)
            }
            _ => Ok(outcome),
        }
    }

    fn run_once(&self, lab: &Lab, job: &Job) -> Result<Outcome> {
        let work = WorkDir::create()?;
        let dir = work.path();
        join_initrd(lab, job, dir)?;
        let mut qemu = self.command(lab, job, dir);
        let name = proc::describe(&qemu);
        let mut child = qemu.spawn().map_err(|e| proc::spawn_error(&name, &e))?;
        let printed = AtomicBool::new(false);
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let ended = std::thread::scope(|s| {
            let printed = &printed;
            s.spawn(move || relay(out, &mut io::stdout(), printed));
            s.spawn(move || relay(err, &mut io::stderr(), printed));
            wait(&mut child, self.timeout)
        });
        let ended = ended.at("wait for qemu in", dir)?;
        Ok(outcome(dir, ended, !printed.into_inner()))
    }

    fn command(&self, lab: &Lab, job: &Job, dir: &Path) -> Command {
        let mut c = lab.tools.bound_qemu();
        c.current_dir(dir).args(["-nodefaults", "-no-user-config", "-no-reboot"]);
        let threads = if self.count { "tcg,thread=single" } else { "tcg,thread=multi" };
        c.args(["-display", "none", "-M", "q35", "-accel", threads, "-cpu", "max"]);
        if self.count {
            c.args(["-icount", "shift=0,sleep=off"]);
        }
        c.args(["-smp", &self.cpus.to_string(), "-m", &self.memory_mib.to_string()]);
        c.arg("-kernel").arg(lab.kernel_dir.join(VMLINUZ));
        c.args(["-initrd", INITRD, "-append", &self.kernel_line()]);
        c.args(["-serial", &format!("file:{CONSOLE}"), "-device", "virtio-serial-pci"]);
        c.args(["-chardev", &format!("file,id=status,path={STATUS}")]);
        port(&mut c, "virtserialport,nr=3", "status");
        // qemu's own messages and the guest's stderr share a pipe.
        c.args(["-chardev", "file,id=err,path=/proc/self/fd/2"]);
        port(&mut c, "virtserialport,nr=2", "err");
        if job.shell.is_some() {
            terminal(&mut c);
        } else {
            c.args(["-chardev", "file,id=out,path=/proc/self/fd/1"]);
            port(&mut c, "virtserialport,nr=1", "out");
            c.stdin(Stdio::null()).stdout(Stdio::piped());
        }
        if let Some(socket) = &self.gdb {
            let stub = format!("unix:{},server=on,wait=off", socket.display());
            c.args(["-S", "-gdb", &stub]);
        }
        c.stderr(Stdio::piped());
        c
    }

    fn kernel_line(&self) -> String {
        let mut line = String::from("console=ttyS0 quiet panic=-1 rdinit=/init mitigations=off tsc=reliable");
        if self.gdb.is_some() {
            line += " nokaslr";
        }
        for word in &self.append {
            line += &format!(" {word}");
        }
        line
    }
}

fn port(c: &mut Command, device: &str, chardev: &str) {
    c.args(["-device", &format!("{device},chardev={chardev}")]);
}

/// An interactive console on this terminal; the command's output goes there by way of stderr.
fn terminal(c: &mut Command) {
    c.args(["-chardev", "stdio,id=tty,signal=off,mux=on", "-mon", "chardev=tty"]);
    port(c, "virtconsole,nr=0", "tty");
    c.args(["-chardev", "file,id=out,path=/proc/self/fd/2"]);
    port(c, "virtserialport,nr=1", "out");
}

/// The kernel unpacks cpio archives one after another; each starts at a multiple of four.
fn join_initrd(lab: &Lab, job: &Job, dir: &Path) -> Result<()> {
    let own = dir.join("job.cpio");
    job.write(&own)?;
    let initrd = dir.join(INITRD);
    let mut out = File::create(&initrd).at("create", &initrd)?;
    let parts = [lab.userland_dir.join(USERLAND_CPIO), lab.kernel_dir.join(MODULES_CPIO), own];
    for part in &parts {
        let mut from = File::open(part).at("open", part)?;
        let bytes = io::copy(&mut from, &mut out).at("copy", part)?;
        let padding = bytes.wrapping_neg() % 4;
        out.write_all(&[0; 4][..padding as usize]).at("write", &initrd)?;
    }
    Ok(())
}

/// Copies until the end, as it comes.
fn relay(from: Option<impl Read>, to: &mut impl Write, printed: &AtomicBool) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 1 << 16];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        printed.store(true, Ordering::Relaxed);
        if to.write_all(&buffer[..bytes]).and_then(|()| to.flush()).is_err() {
            // The reader is gone: read on, so that the guest does not hang on a full pipe.
            io::copy(&mut from, &mut io::sink()).ok();
        }
    }
}

/// Whether qemu ended by itself in time.
fn wait(child: &mut Child, timeout: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + timeout;
    while child.try_wait()?.is_none() {
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(true)
}

fn outcome(dir: &Path, ended: bool, silent: bool) -> Outcome {
    let status = fs::read_to_string(dir.join(STATUS)).unwrap_or_default();
    let console = fs::read(dir.join(CONSOLE)).unwrap_or_default();
    let console = String::from_utf8_lossy(&console).into_owned();
    match status.trim().split_once(' ') {
        Some(("exit", code)) => Outcome::Exited(code.parse().unwrap_or(super::BAD_STATUS)),
        Some((_, what)) => Outcome::SetupFailed(format!("{what}\n{}", tail(&console))),
        None if ended => Outcome::Crashed { console, silent },
        None => Outcome::TimedOut { console },
    }
}

/// The lines that tell most: around a panic, else the last.
pub(crate) fn tail(console: &str) -> String {
    const LINES: usize = 30;
    let lines: Vec<&str> = console.lines().map(str::trim_end).collect();
    let panic = lines.iter().position(|l| l.contains("Kernel panic"));
    let end = panic.map_or(lines.len(), |at| lines.len().min(at + LINES / 2));
    lines[end.saturating_sub(LINES)..end].join("\n")
}
