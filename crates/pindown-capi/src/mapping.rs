//! Which status each error of the Rust library is.

use pindown::everything::EverythingError;
use pindown::queue::{QueueBuildError, QueueError, SubmitError};
use pindown::watch::WatchError;
use pindown::{AcquireError, BuildError, CloseError, FlushError, MonitorError, RangeError, RegisterError};

use crate::failure::Failure;
use crate::status::pindown_status::{self, *};

/// An error that has a status.
trait Mapped {
    fn status(&self) -> pindown_status;
}

macro_rules! mapped {
    ($($error:ty: |$e:ident| $status:expr;)*) => {$(
        impl Mapped for $error {
            fn status(&self) -> pindown_status {
                let $e = self;
                $status
            }
        }
        impl From<$error> for Box<Failure> {
            fn from(error: $error) -> Self {
                Failure::of(error.status(), &error)
            }
        }
    )*};
}

mapped! {
    RangeError: |_e| PINDOWN_E_RANGE;
    RegisterError: |e| match e {
        Self::Limit { .. } => PINDOWN_E_LIMIT,
        Self::Unsupported { .. } => PINDOWN_E_MEMORY,
        Self::Busy { .. } => PINDOWN_E_BUSY,
        Self::WrongThread => PINDOWN_E_WRONG_THREAD,
        Self::DeviceGone { .. } => PINDOWN_E_DEVICE_GONE,
        Self::Io { .. } => PINDOWN_E_IO,
        _ => PINDOWN_E_OTHER,
    };
    MonitorError: |e| match e {
        Self::Forked => PINDOWN_E_FORKED,
        _ => PINDOWN_E_MONITOR,
    };
    BuildError: |e| match e {
        Self::Monitor { .. } => PINDOWN_E_MONITOR,
        _ => PINDOWN_E_INVALID,
    };
    FlushError: |e| match e {
        Self::Held { .. } => PINDOWN_E_HELD,
        Self::Failing { .. } => PINDOWN_E_DEREGISTER,
        Self::WrongThread => PINDOWN_E_WRONG_THREAD,
        Self::Forked => PINDOWN_E_FORKED,
        _ => PINDOWN_E_OTHER,
    };
    CloseError: |e| match e {
        Self::Left { .. } => PINDOWN_E_HELD,
        Self::Forked => PINDOWN_E_FORKED,
        _ => PINDOWN_E_OTHER,
    };
    SubmitError: |e| match e {
        Self::Full { .. } => PINDOWN_E_QUEUE_FULL,
        Self::Closed => PINDOWN_E_CLOSED,
        Self::Forked => PINDOWN_E_FORKED,
        Self::OtherCache => PINDOWN_E_INVALID,
        _ => PINDOWN_E_OTHER,
    };
    QueueBuildError: |_e| PINDOWN_E_IO;
    WatchError: |e| match e {
        Self::Monitor(error) => error.status(),
        Self::NotCovered { .. } => PINDOWN_E_NOT_COVERED,
        Self::CookieInUse(_) => PINDOWN_E_COOKIE,
        Self::Io(_) => PINDOWN_E_IO,
        _ => PINDOWN_E_OTHER,
    };
}

impl From<AcquireError> for Box<Failure> {
    fn from(error: AcquireError) -> Self {
        match &error {
            AcquireError::Register(refused) => Failure::of(refused.status(), &**refused),
            _ => Failure::of(of_acquire(&error), &error),
        }
    }
}

fn of_acquire(error: &AcquireError) -> pindown_status {
    match error {
        AcquireError::Range(_) => PINDOWN_E_RANGE,
        AcquireError::Register(refused) => refused.status(),
        AcquireError::Budget { .. } => PINDOWN_E_BUDGET,
        AcquireError::TooLong { .. } => PINDOWN_E_TOO_LONG,
        AcquireError::Panicked => PINDOWN_E_PANIC,
        AcquireError::Forked => PINDOWN_E_FORKED,
        AcquireError::Closed => PINDOWN_E_CLOSED,
        _ => PINDOWN_E_OTHER,
    }
}

impl From<QueueError> for Box<Failure> {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Acquire(error) => error.into(),
            QueueError::Flush(error) => error.into(),
            QueueError::Range(error) => error.into(),
            QueueError::Submit(error) => error.into(),
            QueueError::Cancelled => Failure::of(PINDOWN_E_CANCELLED, &error),
            QueueError::Closed => Failure::of(PINDOWN_E_CLOSED, &error),
            QueueError::Panicked => Failure::of(PINDOWN_E_PANIC, &error),
            _ => Failure::of(PINDOWN_E_OTHER, &error),
        }
    }
}

impl From<EverythingError> for Box<Failure> {
    fn from(error: EverythingError) -> Self {
        match error {
            EverythingError::Range(error) => error.into(),
            EverythingError::Acquire(error) => error.into(),
            EverythingError::Hole { .. } => Failure::of(PINDOWN_E_HOLE, &error),
            EverythingError::NotRegistrable { .. } => Failure::of(PINDOWN_E_MEMORY, &error),
            EverythingError::TooManySegments { .. } => Failure::of(PINDOWN_E_SEGMENTS, &error),
            _ => Failure::of(PINDOWN_E_OTHER, &error),
        }
    }
}
