//! Every system call, ioctl and foreign function.
