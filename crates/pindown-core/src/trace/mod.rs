//! Traces: what a program asked of its cache, for replay and tuning.

mod binary;
mod json;
mod recorder;

pub use binary::{BinaryReader, BinaryWriter, MAGIC, TraceError};
pub use json::write_json_line;
pub use recorder::{Recorder, recorder, start};

use crate::Access;

/// One event, at a time from the trace's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds from the start of the trace.
    pub t_ns: u64,
    /// What happened.
    pub op: Op,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A registration was asked for.
    Acquire {
        /// Names the acquisition until its `Put`; unique while it is held.
        id: u64,
        /// First byte.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// The rights asked for.
        access: Access,
    },
    /// It was given back.
    Put {
        /// Of the acquisition.
        id: u64,
    },
    /// The memory changed: registrations that touch it are void.
    Invalidate {
        /// First byte.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
    /// The acquisition made a registration, which took this long.
    Registered {
        /// Of the acquisition.
        id: u64,
        /// Measured time in nanoseconds.
        cost_ns: u64,
    },
}
