//! The compact form of a trace: about 8 bytes an event.
//!
//! The file starts with [`MAGIC`]. Each event is one byte (operation in the low 2 bits, access in
//! the next 5) and LEB128 numbers: time since the event before (zigzag), then what the operation
//! needs: ids and addresses as zigzag differences to the last one, lengths and costs as they are.

use std::io::{self, BufRead, Write};

use super::{Event, Op};
use crate::Access;

/// First bytes of a file: name and version.
pub const MAGIC: [u8; 8] = *b"pintrc\x00\x01";

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The first bytes are not [`MAGIC`].
    #[error("not a binary pindown trace, or of a version this build does not know")]
    NotATrace,
    /// The bytes make no event.
    #[error("event {event}: {what} (the file is damaged; what comes before can be read)")]
    Malformed {
        /// Number of the event, from 0.
        event: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The file ends inside an event: its writer was killed.
    #[error("the file ends inside event {event} (its writer was killed?); what comes before can be read")]
    Truncated {
        /// Number of the event, from 0.
        event: u64,
    },
    /// Reading failed.
    #[error("reading the trace failed")]
    Io(#[from] io::Error),
}

#[derive(Clone, Copy, Debug, Default)]
struct Last {
    t_ns: u64,
    id: u64,
    addr: u64,
}

/// Writes events in the compact form.
#[derive(Debug)]
pub struct BinaryWriter<W> {
    out: W,
    last: Last,
}

impl<W: Write> BinaryWriter<W> {
    /// Starts a file.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&MAGIC)?;
        Ok(Self { out, last: Last::default() })
    }

    /// Appends an event. Times may go back a little (threads are merged as they come).
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        let mut buf = Encoder::default();
        let last = &mut self.last;
        let (tag, access) = match event.op {
            Op::Acquire { access, .. } => (0, access),
            Op::Put { .. } => (1, Access::READ),
            Op::Invalidate { .. } => (2, Access::READ),
            Op::Registered { .. } => (3, Access::READ),
        };
        buf.byte(tag | access.bits() << 2);
        buf.difference(&mut last.t_ns, event.t_ns);
        match event.op {
            Op::Acquire { id, addr, len, .. } => {
                buf.difference(&mut last.id, id);
                buf.difference(&mut last.addr, addr);
                buf.number(len);
            }
            Op::Put { id } => buf.difference(&mut last.id, id),
            Op::Invalidate { addr, len } => {
                buf.difference(&mut last.addr, addr);
                buf.number(len);
            }
            Op::Registered { id, cost_ns } => {
                buf.difference(&mut last.id, id);
                buf.number(cost_ns);
            }
        }
        self.out.write_all(buf.bytes())
    }

    /// Flushes and gives the sink back.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    /// Flushes what was written.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// At most 1 + 4 numbers of 10 bytes.
struct Encoder {
    bytes: [u8; 41],
    len: usize,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { bytes: [0; 41], len: 0 }
    }
}

impl Encoder {
    fn byte(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }
    fn number(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.byte(n as u8 | 0x80);
            n >>= 7;
        }
        self.byte(n as u8);
    }
    fn difference(&mut self, last: &mut u64, n: u64) {
        let d = n.wrapping_sub(*last) as i64;
        self.number((d << 1 ^ d >> 63) as u64);
        *last = n;
    }
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Reads events in the compact form.
#[derive(Debug)]
pub struct BinaryReader<R> {
    input: R,
    last: Last,
    event: u64,
}

impl<R: BufRead> BinaryReader<R> {
    /// Checks the file's first bytes.
    ///
    /// # Errors
    ///
    /// [`TraceError::NotATrace`] if they are not [`MAGIC`]; I/O errors.
    pub fn new(mut input: R) -> Result<Self, TraceError> {
        let mut magic = [0; 8];
        input.read_exact(&mut magic).map_err(|_| TraceError::NotATrace)?;
        if magic != MAGIC {
            return Err(TraceError::NotATrace);
        }
        Ok(Self { input, last: Last::default(), event: 0 })
    }

    fn byte(&mut self) -> Result<u8, TraceError> {
        let mut byte = [0];
        match self.input.read_exact(&mut byte) {
            Ok(()) => Ok(byte[0]),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Err(TraceError::Truncated { event: self.event })
            }
            Err(e) => Err(e.into()),
        }
    }

    fn number(&mut self) -> Result<u64, TraceError> {
        let mut n = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            n |= u64::from(byte & 0x7f) << shift.min(63);
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(self.malformed("a number is longer than 64 bits"))
    }

    fn difference(&mut self, last: u64) -> Result<u64, TraceError> {
        let z = self.number()?;
        Ok(last.wrapping_add(z >> 1 ^ (z & 1).wrapping_neg()))
    }

    fn malformed(&self, what: &'static str) -> TraceError {
        TraceError::Malformed { event: self.event, what }
    }

    fn id(&mut self) -> Result<u64, TraceError> {
        self.last.id = self.difference(self.last.id)?;
        Ok(self.last.id)
    }

    fn addr(&mut self) -> Result<u64, TraceError> {
        self.last.addr = self.difference(self.last.addr)?;
        Ok(self.last.addr)
    }

    fn read(&mut self) -> Result<Option<Event>, TraceError> {
        if self.input.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let tag = self.byte()?;
        let access = Access::from_bits(tag >> 2).ok_or_else(|| self.malformed("unknown access rights"))?;
        self.last.t_ns = self.difference(self.last.t_ns)?;
        let op = match tag & 3 {
            0 => Op::Acquire { id: self.id()?, addr: self.addr()?, len: self.number()?, access },
            1 => Op::Put { id: self.id()? },
            2 => Op::Invalidate { addr: self.addr()?, len: self.number()? },
            _ => Op::Registered { id: self.id()?, cost_ns: self.number()? },
        };
        self.event += 1;
        Ok(Some(Event { t_ns: self.last.t_ns, op }))
    }
}

impl<R: BufRead> Iterator for BinaryReader<R> {
    type Item = Result<Event, TraceError>;
    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (any::<u64>(), any::<u64>(), any::<u64>(), 0u8..32).prop_map(|(id, addr, len, bits)| {
                Op::Acquire { id, addr, len, access: Access::from_bits_truncate(bits) }
            }),
            any::<u64>().prop_map(|id| Op::Put { id }),
            any::<(u64, u64)>().prop_map(|(addr, len)| Op::Invalidate { addr, len }),
            any::<(u64, u64)>().prop_map(|(id, cost_ns)| Op::Registered { id, cost_ns }),
        ]
    }

    fn write(events: &[Event]) -> Vec<u8> {
        let mut writer = BinaryWriter::new(Vec::new()).unwrap();
        events.iter().for_each(|e| writer.write(e).unwrap());
        writer.finish().unwrap()
    }

    proptest! {
        #[test]
        fn any_events_come_back(ops in proptest::collection::vec((any::<u64>(), op()), 0..40)) {
            let events: Vec<_> = ops.into_iter().map(|(t_ns, op)| Event { t_ns, op }).collect();
            let bytes = write(&events);
            let back: Result<Vec<_>, _> = BinaryReader::new(&bytes[..]).unwrap().collect();
            prop_assert_eq!(back.unwrap(), events);
        }

        #[test]
        fn any_bytes_are_an_error_or_events(tail in proptest::collection::vec(any::<u8>(), 0..200)) {
            let bytes = [&MAGIC[..], &tail].concat();
            for event in BinaryReader::new(&bytes[..]).unwrap() {
                if event.is_err() {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_cut_file_says_where() {
        let event = Event { t_ns: 5, op: Op::Put { id: 300 } };
        let bytes = write(&[event, event]);
        let cut = &bytes[..bytes.len() - 1];
        let read: Vec<_> = BinaryReader::new(cut).unwrap().collect();
        assert!(matches!(read[..], [Ok(_), Err(TraceError::Truncated { event: 1 })]), "{read:?}");
        assert!(matches!(BinaryReader::new(&b"{\"t_ns\":0,"[..]), Err(TraceError::NotATrace)));
    }
}
