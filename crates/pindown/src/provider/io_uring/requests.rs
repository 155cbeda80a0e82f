//! Requests of the `io-uring` crate that go through a registered buffer.

use io_uring::{opcode, types};
use pindown_core::PageRange;

use super::UringKey;

/// Why a request cannot go through a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The kernel would fail it with EFAULT.
    #[error(
        "{len_bytes} bytes at {addr:#x} are not inside the registered {range}: ask for a registration of all of them"
    )]
    Outside {
        /// Where the bytes begin.
        addr: usize,
        /// How many.
        len_bytes: usize,
        /// What is registered.
        range: PageRange,
    },
    /// A request's length has 32 bits.
    #[error("{len_bytes} bytes are more than one request moves: split it")]
    TooLong {
        /// How many.
        len_bytes: usize,
    },
}

/// The entries come out as `io-uring` makes them, to be given an offset and flags and `build()`. Pushing one
/// is `unsafe` there, for the reason for which [`acquire`](pindown_core::Cache::acquire) is: hold the
/// registration, and keep the memory free for it, until the completion was seen.
impl UringKey {
    /// `IORING_OP_WRITE_FIXED`: writes `len_bytes` bytes at `addr` to `fd` (io_uring_enter(2), Linux 5.1).
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn write_fixed(
        self,
        fd: types::Fd,
        addr: *const u8,
        len_bytes: usize,
    ) -> Result<opcode::WriteFixed, RequestError> {
        Ok(opcode::WriteFixed::new(fd, addr, self.admit(addr, len_bytes)?, self.buf_index()))
    }

    /// `IORING_OP_READ_FIXED`: reads up to `len_bytes` bytes from `fd` to `addr` (Linux 5.1).
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn read_fixed(
        self,
        fd: types::Fd,
        addr: *mut u8,
        len_bytes: usize,
    ) -> Result<opcode::ReadFixed, RequestError> {
        Ok(opcode::ReadFixed::new(fd, addr, self.admit(addr, len_bytes)?, self.buf_index()))
    }

    /// `IORING_OP_SEND_ZC`: sends `len_bytes` bytes at `addr` on a socket without a copy (Linux 6.0). The
    /// memory is in use until the second completion (`IORING_CQE_F_NOTIF`).
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn send_zc(
        self,
        fd: types::Fd,
        addr: *const u8,
        len_bytes: usize,
    ) -> Result<opcode::SendZc, RequestError> {
        let len = self.admit(addr, len_bytes)?;
        Ok(opcode::SendZc::new(fd, addr, len).buf_index(Some(self.buf_index())))
    }

    fn admit(self, addr: *const u8, len_bytes: usize) -> Result<u32, RequestError> {
        if !self.covers(addr, len_bytes) {
            return Err(RequestError::Outside { addr: addr.addr(), len_bytes, range: self.range() });
        }
        u32::try_from(len_bytes).map_err(|_| RequestError::TooLong { len_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_outside_the_buffer_are_told_before_the_kernel_does() {
        let key = UringKey::new(3, PageRange::new(0x1000, 0x3000).unwrap());
        let (fd, at) = (types::Fd(0), |addr| std::ptr::without_provenance_mut::<u8>(addr));
        assert!(key.write_fixed(fd, at(0x1000), 0x2000).is_ok());
        assert!(key.read_fixed(fd, at(0x2fff), 1).is_ok());
        let outside = RequestError::Outside { addr: 0x2fff, len_bytes: 2, range: key.range() };
        assert_eq!(key.read_fixed(fd, at(0x2fff), 2).err(), Some(outside));
        assert_eq!(key.send_zc(fd, at(0x2fff), 2).err(), Some(outside));
        let all = UringKey::new(3, PageRange::new(0x1000, 6 << 30).unwrap());
        let too_long = RequestError::TooLong { len_bytes: 5 << 30 };
        assert_eq!(all.write_fixed(fd, at(0x1000), 5 << 30).err(), Some(too_long));
    }
}
