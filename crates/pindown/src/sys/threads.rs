//! The threads of this process: which there are, how long each has run in user mode, and which
//! call it is blocked in.

use std::fmt::Write as _;
use std::fs;
use std::io::Read;

/// Where `/proc/self/task/T/syscall` shows a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// On a CPU or about to be; says nothing.
    Running,
    /// Asleep in this system call, entered from user mode.
    Call(i64),
    /// Asleep in the kernel, entered from user mode by a fault or an interrupt.
    Fault,
    /// Has no user-mode state: a worker that the kernel runs in this process (io_uring, vhost),
    /// or a zombie. Asleep in the kernel function named.
    Worker(Wchan),
    /// It exited.
    Gone,
    /// The file cannot be read or makes no sense.
    Unknown,
}

/// What a kernel worker sleeps in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wchan {
    /// Its own idle loop, with no work in hand.
    Idle,
    /// Something else.
    Other,
}

/// This thread's id.
pub(crate) fn gettid() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// Time that thread `tid` of this process has run in user mode, in nanoseconds. `None`: there is no
/// such thread (any more).
///
/// The per-thread CPU clock `CPUCLOCK_VIRT` (`kernel/time/posix-cpu-timers.c`) is what ticks in user
/// mode add up to, or exact on nohz_full. Unlike `utime` in `/proc` it is not scaled by the run
/// time, so that it does not move while the thread stays in the kernel.
pub(crate) fn user_ns(tid: u32) -> Option<u64> {
    const PER_THREAD: libc::clockid_t = 4;
    const CPUCLOCK_VIRT: libc::clockid_t = 1;
    super::clock_ns(!(tid as libc::clockid_t) << 3 | PER_THREAD | CPUCLOCK_VIRT)
}

/// All threads of this process at some moment during the call; `None` when that moment could not
/// be established.
///
/// Reading the directory while threads exit may end early or skip one, so the list is taken only
/// if, *after* it was read, the kernel counts as many threads as are on the list and each of these
/// still lives. Then the list held every thread at the moment of the count. (A thread that died
/// before the count and whose id was given to another before it was looked up would defeat this;
/// ids are given out in a circle of at least 32,768, and the two steps are microseconds apart.)
pub(crate) fn list() -> Option<Vec<u32>> {
    (0..16).find_map(|_| try_list())
}

fn try_list() -> Option<Vec<u32>> {
    let mut tids = Vec::with_capacity(64);
    for entry in fs::read_dir("/proc/self/task").ok()? {
        tids.push(entry.ok()?.file_name().to_str()?.parse().ok()?);
    }
    tids.sort_unstable();
    tids.dedup();
    let complete = count()? == tids.len() && tids.iter().all(|&tid| user_ns(tid).is_some());
    complete.then_some(tids)
}

/// `num_threads`, field 20 of `/proc/self/stat` (`proc_pid_stat(5)`).
fn count() -> Option<usize> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold anything, parentheses too.
    stat.rsplit(')').next()?.split_ascii_whitespace().nth(17)?.parse().ok()
}

/// Where thread `tid` is.
pub(crate) fn location(tid: u32) -> Where {
    let mut buffer = [0u8; 256];
    let text = match read_task(tid, "syscall", &mut buffer) {
        Ok(text) => text,
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => return Where::Gone,
        Err(_) => return Where::Unknown,
    };
    match parse_syscall(text) {
        Some(Parsed::Running) => Where::Running,
        Some(Parsed::Asleep { stack: 0, .. }) => worker(tid),
        Some(Parsed::Asleep { number: -1, .. }) => Where::Fault,
        Some(Parsed::Asleep { number, .. }) => Where::Call(number),
        None => Where::Unknown,
    }
}

enum Parsed {
    Running,
    Asleep { number: i64, stack: u64 },
}

/// `running`, or `number args... stack-pointer program-counter`, or `-1 stack-pointer pc`.
fn parse_syscall(text: &str) -> Option<Parsed> {
    let fields: Vec<_> = text.split_ascii_whitespace().collect();
    if fields == ["running"] {
        return Some(Parsed::Running);
    }
    let number = fields.first()?.parse().ok()?;
    let stack = fields.get(fields.len().checked_sub(2)?).filter(|_| fields.len() >= 3)?;
    let stack = u64::from_str_radix(stack.strip_prefix("0x")?, 16).ok()?;
    Some(Parsed::Asleep { number, stack })
}

/// A thread without a user stack pointer: what it sleeps in, by the kernel's symbol.
fn worker(tid: u32) -> Where {
    let mut buffer = [0u8; 256];
    let is_zombie = read_task(tid, "stat", &mut buffer)
        .is_ok_and(|stat| matches!(stat.rsplit(") ").next().and_then(|s| s.chars().next()), Some('Z' | 'X')));
    if is_zombie {
        return Where::Gone;
    }
    let idle = ["io_wq_worker", "io_sq_thread", "vhost_task_fn"];
    match read_task(tid, "wchan", &mut buffer) {
        Ok(symbol) if idle.contains(&symbol) => Where::Worker(Wchan::Idle),
        _ => Where::Worker(Wchan::Other),
    }
}

fn read_task<'b>(tid: u32, file: &str, buffer: &'b mut [u8]) -> std::io::Result<&'b str> {
    let mut path = String::with_capacity(48);
    let _ = write!(path, "/proc/self/task/{tid}/{file}");
    let n = fs::File::open(path)?.read(buffer)?;
    Ok(std::str::from_utf8(&buffer[..n]).unwrap_or("").trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
    use std::time::{Duration, Instant};

    fn until(what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(10), "never: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn user_time_moves_in_user_mode_only() {
        let (tid, stop) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                tid.store(gettid(), SeqCst);
                while !stop.load(SeqCst) {
                    std::hint::spin_loop();
                }
            });
            until("the thread runs", || tid.load(SeqCst) != 0);
            let before = user_ns(tid.load(SeqCst)).unwrap();
            assert!(matches!(location(tid.load(SeqCst)), Where::Running | Where::Fault));
            until("its user time moves", || user_ns(tid.load(SeqCst)) > Some(before));
            stop.store(true, SeqCst);
        });
        until("it is gone", || user_ns(tid.load(SeqCst)).is_none());
        assert_eq!(location(tid.load(SeqCst)), Where::Gone);
    }

    #[test]
    fn a_blocked_thread_shows_its_call() {
        let (tid, stop) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let blocked = scope.spawn(|| {
                tid.store(gettid(), SeqCst);
                while !stop.load(SeqCst) {
                    std::thread::park();
                }
            });
            until("it parks", || location(tid.load(SeqCst)) == Where::Call(libc::SYS_futex));
            let all = list().unwrap();
            assert!(all.contains(&tid.load(SeqCst)) && all.contains(&gettid()));
            stop.store(true, SeqCst);
            blocked.thread().unpark();
        });
    }

    #[test]
    fn the_list_is_right_while_threads_come_and_go() {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stayers: Vec<_> = (0..8)
                .map(|_| {
                    let (say, hear) = std::sync::mpsc::channel();
                    let stop = &stop;
                    let handle = scope.spawn(move || {
                        say.send(gettid()).unwrap();
                        while !stop.load(SeqCst) {
                            std::thread::park_timeout(Duration::from_millis(5));
                        }
                    });
                    (hear.recv().unwrap(), handle)
                })
                .collect();
            let churn = scope.spawn(|| {
                while !stop.load(SeqCst) {
                    std::thread::scope(|inner| {
                        (0..4).for_each(|_| drop(inner.spawn(|| ())));
                    });
                }
            });
            let lists: Vec<_> = (0..200).filter_map(|_| list()).collect();
            assert!(!lists.is_empty(), "the process's threads can be listed now and then");
            for tids in lists {
                assert!(stayers.iter().all(|(tid, _)| tids.contains(tid)));
            }
            stop.store(true, SeqCst);
            churn.join().unwrap();
        });
    }

    /// io_uring runs MADVISE in a worker, a thread of this process that never sees user mode.
    #[cfg(feature = "io-uring")]
    #[test]
    fn an_idle_io_uring_worker_is_known_to_be_idle() {
        let Ok(mut ring) = io_uring::IoUring::new(2) else {
            println!("skipped: no io_uring");
            return;
        };
        let memory = crate::sys::test_memory::Memory::anonymous(1);
        let advise = io_uring::opcode::Madvise::new(memory.addr() as *const _, 4096, libc::MADV_WILLNEED);
        // SAFETY: the memory outlives the request, which is waited for; the advice changes nothing.
        unsafe { ring.submission().push(&advise.build()).unwrap() };
        ring.submit_and_wait(1).unwrap();
        assert_eq!(ring.completion().next().unwrap().result(), 0);
        let is_worker = |tid: &u32| {
            let comm = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).unwrap_or_default();
            comm.starts_with("iou-wrk")
        };
        let workers: Vec<_> = list().unwrap().into_iter().filter(is_worker).collect();
        assert!(!workers.is_empty(), "MADVISE did not make a worker");
        for tid in workers {
            assert_eq!(user_ns(tid), Some(0));
            until("the worker is idle", || matches!(location(tid), Where::Worker(Wchan::Idle) | Where::Gone));
        }
    }

    #[test]
    fn syscall_lines() {
        let asleep = |text| match parse_syscall(text) {
            Some(Parsed::Asleep { number, stack }) => Some((number, stack)),
            _ => None,
        };
        assert_eq!(asleep("202 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffd00 0x7f00"), Some((202, 0x7ffd00)));
        assert_eq!(asleep("-1 0x7ffd00 0x7f00"), Some((-1, 0x7ffd00)));
        assert_eq!(asleep("-1 0x0 0x0"), Some((-1, 0)));
        assert!(matches!(parse_syscall("running"), Some(Parsed::Running)));
        for bad in ["", "1", "1 0x2", "x 0x1 0x2", "1 2 3"] {
            assert!(parse_syscall(bad).is_none(), "{bad}");
        }
    }
}
