//! Structures from C that begin with their own size, so that later versions can add members.

use crate::failure::{Failure, Result};

/// A structure whose first member is its size in bytes, as the caller knows it.
///
/// # Safety
///
/// Any bytes make a valid value (zero bytes are the defaults), and `size: usize` is its first member.
pub(crate) unsafe trait Versioned: Copy {}

/// The caller's structure, later members zero if the caller does not know them. NULL: all zero.
///
/// # Safety
///
/// `given` is NULL, or leads to a size and that many bytes of such a structure.
pub(crate) unsafe fn read<T: Versioned>(given: *const T, least_bytes: usize, what: &str) -> Result<T> {
    // SAFETY: by the trait, zero bytes are a value.
    let mut value = unsafe { std::mem::zeroed::<T>() };
    if given.is_null() {
        return Ok(value);
    }
    // SAFETY: by the trait and the caller, a size lies there; C may not have aligned it.
    let size_bytes = unsafe { given.cast::<usize>().read_unaligned() };
    if size_bytes < least_bytes {
        let message = format!("{what}.size is {size_bytes}: set it to sizeof(struct {what})");
        return Err(Failure::invalid(message));
    }
    let known_bytes = size_bytes.min(size_of::<T>());
    // SAFETY: that many bytes are readable by the caller's promise, writable since `value` is as long, and
    // any bytes make a `T`.
    unsafe { std::ptr::copy_nonoverlapping(given.cast::<u8>(), (&raw mut value).cast(), known_bytes) };
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Sample {
        size: usize,
        old: u64,
        new: u64,
    }
    // SAFETY: numbers only, the size first.
    unsafe impl Versioned for Sample {}

    fn read_sample(given: *const Sample) -> Result<(u64, u64)> {
        // SAFETY: NULL, or a live sample with a size that is no more than it has.
        unsafe { read(given, 16, "sample") }.map(|s| (s.old, s.new))
    }

    #[test]
    fn older_callers_get_the_defaults_of_what_they_do_not_know() {
        let mut sample = Sample { size: 16, old: 1, new: 2 };
        assert_eq!(read_sample(&sample).unwrap(), (1, 0));
        sample.size = size_of::<Sample>();
        assert_eq!(read_sample(&sample).unwrap(), (1, 2));
        assert_eq!(read_sample(std::ptr::null()).unwrap(), (0, 0));
        sample.size = 8;
        assert!(read_sample(&sample).unwrap_err().message.contains("sizeof(struct sample)"));
    }
}
