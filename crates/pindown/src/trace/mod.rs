//! Recording what this program asks of its caches, for `pindown replay` and `pindown advise`.
//!
//! Off, it costs nothing; on, a request costs some tens of nanoseconds more. Memory is bounded, and
//! nothing ever waits for the file: what it cannot take in time is dropped and counted.

mod writer;

use std::io;
use std::path::Path;

pub use pindown_core::trace::{Event, Op};

/// The environment variable by which `pindown trace` tells a program where to record to.
pub const VARIABLE: &str = "PINDOWN_TRACE";

/// Records all caches of this process that are built from now on, into a new file: JSON lines if its
/// name ends in `.jsonl` or `.json`, else the compact form. Ends with the process; a process that is
/// killed loses the last 20 ms.
///
/// # Errors
///
/// The file cannot be created (`EEXIST` if it exists), a thread cannot be started, or this process
/// records already (`EALREADY`).
pub fn record_to(path: &Path) -> io::Result<()> {
    writer::start(path)
}

/// Events that this process had to drop, since the file was too slow. `None`: nothing is recorded.
pub fn dropped() -> Option<u64> {
    pindown_core::trace::recorder().map(|r| r.dropped())
}

/// What the environment asks for, once a process. A file that cannot be made is told on standard
/// error: the program itself shall run all the same.
pub(crate) fn start_if_asked() {
    static ASKED: std::sync::Once = std::sync::Once::new();
    ASKED.call_once(|| {
        let Some(path) = std::env::var_os(VARIABLE) else { return };
        if let Err(error) = record_to(Path::new(&path)) {
            eprintln!(
                "pindown: nothing is recorded, since {} cannot be: {error}",
                Path::new(&path).display()
            );
        }
    });
}
