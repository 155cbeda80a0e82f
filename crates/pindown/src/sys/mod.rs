//! Every system call, ioctl and foreign function.

#[cfg(feature = "io-uring")]
pub(crate) mod limits;
#[cfg(feature = "io-uring")]
pub(crate) mod process;
#[cfg(feature = "io-uring")]
pub(crate) mod uring;
