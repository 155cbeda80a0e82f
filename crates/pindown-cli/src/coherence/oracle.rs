//! The oracle: bytes that really moved, compared with what the CPU sees.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::sys::{self, Span};

/// Something that pins memory and moves its bytes.
pub(crate) trait Device {
    /// Gets `span` registered, and holds it until [`Device::put`].
    fn acquire(&mut self, span: Span) -> Result<Acquired, String>;
    /// Sends all bytes of the held span to `file`; returns how many moved.
    fn send(&mut self, span: Span, file: &File) -> io::Result<usize>;
    /// Receives into the held span from `file`.
    fn receive(&mut self, span: Span, file: &File) -> io::Result<usize>;
    /// Lets go.
    fn put(&mut self);
}

/// How a request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acquired {
    /// By a registration that existed before.
    pub(crate) hit: bool,
    /// By one that later requests may find.
    pub(crate) cached: bool,
}

/// What a transfer in each direction showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Bytes that went out and were not what the CPU had written.
    wrong_out: usize,
    /// Bytes that came in and that the CPU does not see.
    wrong_in: usize,
}

impl Verdict {
    pub(crate) fn is_right(self) -> bool {
        self.wrong_out == 0 && self.wrong_in == 0
    }

    pub(crate) fn describe(self) -> String {
        format!("{} bytes wrong going out, {} lost coming in", self.wrong_out, self.wrong_in)
    }
}

/// Moves `span` out and new bytes in, through what `device` holds.
pub(crate) fn transfer(device: &mut impl Device, span: Span) -> io::Result<Verdict> {
    let sink = sys::memfd(c"pindown-sink", 0, span.len_bytes())?;
    let sent = device.send(span, &sink)?;
    let mut bytes = vec![0_u8; span.len_bytes()];
    sink.read_exact_at(&mut bytes, 0)?;
    let wrong_out = differing(&bytes, &span.snapshot()) + (span.len_bytes() - sent);
    bytes.iter_mut().enumerate().for_each(|(i, b)| *b = !*b ^ (i >> 12) as u8);
    sink.write_all_at(&bytes, 0)?;
    let received = device.receive(span, &sink)?;
    let wrong_in = differing(&bytes, &span.snapshot()) + (span.len_bytes() - received);
    Ok(Verdict { wrong_out, wrong_in })
}

fn differing(a: &[u8], b: &[u8]) -> usize {
    if a == b { 0 } else { a.iter().zip(b).filter(|(a, b)| a != b).count() }
}
