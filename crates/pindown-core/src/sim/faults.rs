//! [`Fault`]: what goes wrong, and when.

use std::io;

use crate::{Limit, PageRange, RegisterError};

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// ENOMEM: RLIMIT_MEMLOCK.
    Memlock,
    /// ENOMEM: memory.
    Memory,
    /// EAGAIN.
    Busy,
    /// EFAULT: memory that cannot be registered.
    Unsupported,
    /// The device is gone.
    DeviceGone,
    /// Any other error (EIO).
    Io,
    /// The call panics.
    Panic,
}

impl Fault {
    pub(super) fn io_error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Self::Memlock | Self::Memory => 12,
            Self::Busy => 11,
            Self::Unsupported => 14,
            Self::DeviceGone => 19,
            Self::Io => 5,
            Self::Panic => panic!("the sim provider was told to panic"),
        })
    }

    pub(super) fn refuse(self, range: PageRange) -> RegisterError {
        let source = self.io_error();
        let limit = |limit, source| RegisterError::Limit {
            range,
            limit,
            value: None,
            remedy: "a simulated fault: deregister something",
            source,
        };
        match self {
            Self::Memlock => limit(Limit::Memlock, source),
            Self::Memory => limit(Limit::Memory, source),
            Self::Busy => RegisterError::Busy { range, source },
            Self::Unsupported => RegisterError::Unsupported { range, why: "a simulated fault", source },
            Self::DeviceGone => RegisterError::DeviceGone { source },
            Self::Io | Self::Panic => RegisterError::Io { range, source },
        }
    }
}

/// Which calls are counted towards a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `register`.
    Register,
    /// `deregister`.
    Deregister,
    /// Both, in the order in which they come.
    Any,
}

/// Faults that are still to come.
#[derive(Debug, Default)]
pub(super) struct Faults {
    once: Vec<Planned>,
    every: Option<Every>,
    ranges: Vec<(PageRange, Fault)>,
}

#[derive(Debug)]
struct Planned {
    call: Call,
    /// Calls of the kind that still pass.
    passes: u64,
    /// Calls that then fail.
    fails: u64,
    fault: Fault,
}

#[derive(Debug)]
struct Every {
    call: Call,
    nth: u64,
    seen: u64,
    fault: Fault,
}

impl Call {
    fn counts(self, made: Self) -> bool {
        self == Self::Any || self == made
    }
}

impl Faults {
    pub(super) fn plan(&mut self, call: Call, nth: u64, times: u64, fault: Fault) {
        self.once.push(Planned { call, passes: nth.saturating_sub(1), fails: times, fault });
    }

    pub(super) fn every(&mut self, call: Call, nth: u64, fault: Fault) {
        self.every = (nth > 0).then_some(Every { call, nth, seen: 0, fault });
    }

    pub(super) fn refuse(&mut self, range: PageRange, fault: Fault) {
        self.ranges.push((range, fault));
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The fault of a call that is being made, if it has one. Counts it.
    pub(super) fn next(&mut self, made: Call, range: PageRange) -> Option<Fault> {
        let mut found = None;
        for planned in self.once.iter_mut().filter(|p| p.call.counts(made)) {
            if planned.passes > 0 {
                planned.passes -= 1;
            } else if planned.fails > 0 && found.is_none() {
                planned.fails -= 1;
                found = Some(planned.fault);
            }
        }
        self.once.retain(|p| p.passes > 0 || p.fails > 0);
        if let Some(every) = self.every.as_mut().filter(|e| e.call.counts(made)) {
            every.seen += 1;
            if every.seen.is_multiple_of(every.nth) {
                found = found.or(Some(every.fault));
            }
        }
        let refused = self.ranges.iter().find(|(r, _)| made == Call::Register && r.overlaps(range));
        found.or(refused.map(|(_, fault)| *fault))
    }
}
