//! The thread that takes events from memory to the file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use pindown_core::Host;
use pindown_core::trace::{BinaryWriter, Event, Recorder, write_json_line};

use crate::sys::host::LinuxHost;

/// The queue holds what a few threads record in this time.
const PERIOD: Duration = Duration::from_millis(5);

static WRITER: OnceLock<Mutex<Writer>> = OnceLock::new();
/// A forked child has the parent's file, nothing to say in it, and a lock that may be held for ever.
static OWNER: OnceLock<u32> = OnceLock::new();

#[derive(Debug)]
struct Writer {
    recorder: &'static Recorder,
    sink: Sink,
    /// The last event stays, for the times of those that have none.
    events: Vec<Event>,
    failed: bool,
}

#[derive(Debug)]
enum Sink {
    Json(BufWriter<File>),
    Binary(BinaryWriter<BufWriter<File>>),
}

pub(super) fn start(path: &Path) -> io::Result<()> {
    if WRITER.get().is_some() {
        return Err(io::Error::from_raw_os_error(libc::EALREADY));
    }
    let out = BufWriter::with_capacity(1 << 18, File::create_new(path)?);
    let is_json = path.extension().is_some_and(|e| e == "jsonl" || e == "json");
    let sink = if is_json { Sink::Json(out) } else { Sink::Binary(BinaryWriter::new(out)?) };
    let recorder = pindown_core::trace::start(LinuxHost::new().now_ns());
    let mut writer = Writer { recorder, sink, events: Vec::new(), failed: false };
    writer.write_out(true)?; // from the first moment on it is a trace, if an empty one
    if WRITER.set(Mutex::new(writer)).is_err() {
        return Err(io::Error::from_raw_os_error(libc::EALREADY));
    }
    OWNER.get_or_init(std::process::id);
    std::thread::Builder::new().name("pindown-trace".into()).spawn(run)?;
    crate::sys::at_exit::call(finish)
}

fn run() {
    crate::sys::block_signals();
    loop {
        std::thread::sleep(PERIOD);
        write_out(false);
    }
}

/// At the process's end.
extern "C" fn finish() {
    write_out(true);
}

fn write_out(is_last: bool) {
    let Some(writer) = WRITER.get().filter(|_| OWNER.get() == Some(&std::process::id())) else { return };
    // A panic elsewhere leaves whole events.
    let mut writer = writer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if writer.failed {
        return;
    }
    if let Err(error) = writer.write_out(is_last) {
        writer.failed = true;
        eprintln!("pindown: recording ends: {error}");
    }
}

impl Writer {
    fn write_out(&mut self, is_last: bool) -> io::Result<()> {
        let kept = self.events.len();
        self.recorder.drain(&mut self.events);
        for event in &self.events[kept..] {
            match &mut self.sink {
                Sink::Json(out) => write_json_line(out, event)?,
                Sink::Binary(out) => out.write(event)?,
            }
        }
        if is_last || self.events.len() > kept {
            match &mut self.sink {
                Sink::Json(out) => out.flush()?,
                Sink::Binary(out) => out.flush()?,
            }
        }
        let last = self.events.last().copied();
        self.events.clear();
        self.events.extend(last);
        Ok(())
    }
}
