//! Every system call, ioctl and foreign function.

#[cfg(feature = "io-uring")]
pub(crate) mod lanes;
#[cfg(feature = "io-uring")]
pub(crate) mod limits;
#[cfg(feature = "io-uring")]
pub(crate) mod process;
#[cfg(feature = "io-uring")]
pub(crate) mod uring;
#[cfg(feature = "io-uring")]
pub(crate) mod uring_queue;
