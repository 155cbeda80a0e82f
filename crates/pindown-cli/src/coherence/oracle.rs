//! The oracle: bytes that really moved, compared with what the CPU sees.

use std::io;

use crate::sys::Span;

/// Something that pins memory and moves its bytes.
pub(crate) trait Device {
    /// Gets `span` registered, and holds it until [`Device::put`].
    fn acquire(&mut self, span: Span) -> Result<Acquired, String>;
    /// Sends all bytes of the held span, and returns what arrived.
    fn send(&mut self, span: Span) -> io::Result<Vec<u8>>;
    /// Receives `bytes` into the held span.
    fn receive(&mut self, span: Span, bytes: &[u8]) -> io::Result<()>;
    /// Lets go.
    fn put(&mut self);
    /// The program's own report that `span` changed, for those that depend on it.
    fn changed(&mut self, span: Span) {
        let _ = span;
    }
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
    let mut bytes = device.send(span)?;
    let wrong_out = differing(&bytes, &span.snapshot());
    // Every byte changes, and pages that are one (remap_file_pages) stay alike.
    bytes.iter_mut().for_each(|b| *b = !*b);
    device.receive(span, &bytes)?;
    let wrong_in = differing(&bytes, &span.snapshot());
    Ok(Verdict { wrong_out, wrong_in })
}

fn differing(a: &[u8], b: &[u8]) -> usize {
    if a == b { 0 } else { a.iter().zip(b).filter(|(a, b)| a != b).count() + a.len().abs_diff(b.len()) }
}
