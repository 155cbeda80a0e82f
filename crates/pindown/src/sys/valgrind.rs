//! Whether this process runs under valgrind.

/// Whether valgrind runs this process. It runs one thread at a time and keeps its lock through
/// `munmap(2)`, so nothing may wait in munmap for another thread.
///
/// By the client request `RUNNING_ON_VALGRIND` (valgrind's manual, "The Client Request mechanism"):
/// instructions that change nothing on a processor, and that valgrind answers.
pub(crate) fn is_running() -> bool {
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    answer(&request) != 0
}

#[cfg(target_arch = "x86_64")]
fn answer(request: &[u64; 6]) -> u64 {
    let mut answer = 0u64;
    // SAFETY: rdi is rotated by 128 bits in all, which leaves it as it was, and rbx is exchanged with
    // itself. Under valgrind the request is read, which outlives the block, and rdx is set.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") request, inout("rdx") answer, options(nostack)
        );
    }
    answer
}

#[cfg(target_arch = "aarch64")]
fn answer(request: &[u64; 6]) -> u64 {
    let mut answer = 0u64;
    // SAFETY: x12 is rotated by 128 bits in all, which leaves it as it was, and x10 is or-ed with
    // itself. Under valgrind the request is read, which outlives the block, and x3 is set.
    unsafe {
        std::arch::asm!(
            "ror x12, x12, #3", "ror x12, x12, #13", "ror x12, x12, #51", "ror x12, x12, #61",
            "orr x10, x10, x10",
            in("x4") request, inout("x3") answer, options(nostack)
        );
    }
    answer
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn answer(_: &[u64; 6]) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    /// The process has the tool's name under valgrind.
    #[test]
    fn agrees_with_the_name_of_the_process() {
        let name = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(super::is_running(), name.starts_with("memcheck") || name.starts_with("callgrind"));
    }
}
