//! Children of every kind while transfers run: fork, vfork (posix_spawn), clone that shares memory, clone
//! that bypasses libc. Parent and children are right, and nobody hangs. 250 forks, 1000 with `PINDOWN_LONG`.
#![cfg(all(feature = "io-uring", feature = "uffd"))]

mod support;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pindown::{AcquireError, PAGE_SIZE};
use support::child::{fork, reap_within};
use support::moving::Moving;
use support::{Map, in_own_process};

const LONG: Duration = Duration::from_secs(60);

/// Threads that move bytes both ways, in memory that stays and in memory that comes and goes, and compare.
struct Traffic {
    stop: AtomicBool,
    transfers: AtomicU64,
}

impl Traffic {
    const fn new() -> Self {
        Self { stop: AtomicBool::new(false), transfers: AtomicU64::new(0) }
    }

    fn run(&self, mut moving: Moving) {
        let stays = Map::filled(16, 0);
        let mut n = 0u64;
        while !self.stop.load(Ordering::Relaxed) {
            n += 1;
            let received = pattern(n, 4 * PAGE_SIZE);
            let at = stays.ptr().wrapping_add(n as usize % 13 * PAGE_SIZE);
            moving.receive(at, &received);
            // SAFETY: within the mapping; the transfer is over.
            let seen = unsafe { std::slice::from_raw_parts(at, received.len()) };
            assert_eq!(seen, received, "received into pages that the CPU does not see");
            assert_eq!(moving.send(at, received.len()), received);
            let comes = pattern(n + 1, 12 * PAGE_SIZE + 100);
            assert_eq!(moving.send(comes.as_ptr(), comes.len()), comes, "stale bytes");
            self.transfers.fetch_add(3, Ordering::Relaxed);
        }
        moving.close();
    }
}

/// Differs between neighbouring `n` and between neighbouring sectors.
fn pattern(n: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (i, sector) in bytes.chunks_mut(512).enumerate() {
        sector.fill((i as u64 + n.wrapping_mul(31)) as u8);
    }
    bytes
}

/// Runs `body` while two threads transfer. They must get on in the meantime.
fn while_transfers_run(body: impl FnOnce(&Traffic)) {
    let (Some(a), Some(b)) = (Moving::new(), Moving::new()) else { return };
    static TRAFFIC: Traffic = Traffic::new();
    std::thread::scope(|scope| {
        let threads = [a, b].map(|moving| scope.spawn(move || TRAFFIC.run(moving)));
        let (start, before) = (Instant::now(), TRAFFIC.transfers.load(Ordering::Relaxed));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&TRAFFIC)));
        let made = TRAFFIC.transfers.load(Ordering::Relaxed) - before;
        println!("{made} transfers in {:?}", start.elapsed());
        TRAFFIC.stop.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|t| t.join().expect("its transfers were right"));
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert!(made > 0, "transfers went on meanwhile");
    });
}

fn forks() -> u64 {
    if std::env::var_os("PINDOWN_LONG").is_some() { 1000 } else { 250 }
}

#[test]
fn forks_while_transfers_run() {
    in_own_process("forks_while_transfers_run", || {
        while_transfers_run(|_| {
            let mut moving = Moving::new().expect("as above");
            let shared = Map::filled(8, 0);
            let mut children = Vec::new();
            for n in 0..forks() {
                let heap = pattern(n, 40 * PAGE_SIZE);
                moving.receive(shared.ptr(), &pattern(n, 8 * PAGE_SIZE));
                let held = moving.hold(heap.as_ptr(), heap.len()).unwrap();
                let child = fork(|| child(n, &moving, &shared, &heap));
                // Both write what the other must not see; ours through the device and by the CPU.
                shared.fill(n as u8 ^ 0x55);
                assert_eq!(
                    moving.send(shared.ptr(), shared.len()),
                    shared.bytes(),
                    "child's pages were sent"
                );
                moving.receive(shared.ptr(), &pattern(n + 7, 8 * PAGE_SIZE));
                assert_eq!(shared.bytes(), pattern(n + 7, 8 * PAGE_SIZE), "received into the child's pages");
                let sent = moving.send_by(&held, heap.as_ptr(), 16 * PAGE_SIZE).unwrap();
                assert_eq!(sent, heap[..16 * PAGE_SIZE]);
                children.push((n, child));
                if children.len() == 4 {
                    children.drain(..).for_each(ends_well);
                }
            }
            children.drain(..).for_each(ends_well);
            moving.close();
        });
    });
}

fn ends_well((n, child): (u64, i32)) {
    let status = reap_within(child, LONG).unwrap_or_else(|| panic!("child {n} hangs"));
    assert!(status.success(), "child {n}: {status}");
}

/// What a child may do: see what was there at the fork, change and free it, and have a cache of its own.
fn child(n: u64, inherited: &Moving, shared: &Map, heap: &[u8]) {
    assert_eq!(shared.bytes(), pattern(n, 8 * PAGE_SIZE), "what the parent received before the fork");
    assert_eq!(heap, pattern(n, 40 * PAGE_SIZE));
    assert!(inherited.cache.lookup(shared.ptr(), PAGE_SIZE, pindown::Access::READ).is_none());
    assert!(matches!(inherited.hold(shared.ptr(), PAGE_SIZE), Err(AcquireError::Forked)));
    assert_eq!(inherited.cache.stats().regions_registered, 0);
    shared.fill(0xc1);
    shared.unmap_and_map_again();
    drop(vec![1u8; 1 << 20]); // mapped and unmapped by malloc
    if n.is_multiple_of(10) {
        own_cache(n, shared);
    }
}

fn own_cache(n: u64, shared: &Map) {
    let mut own = Moving::new().expect("what the parent could");
    let bytes = pattern(n + 3, 5 * PAGE_SIZE);
    own.receive(shared.ptr(), &bytes);
    assert_eq!(own.send(shared.ptr(), bytes.len()), bytes);
    shared.unmap_and_map_again();
    assert_eq!(own.send(shared.ptr(), bytes.len()), vec![0; bytes.len()], "stale in the child");
    own.close();
}

/// A child that returns from `main` drops all that it inherited: nothing of that reaches the parent's ring.
#[test]
fn a_child_that_drops_what_it_inherited_disturbs_nobody() {
    in_own_process("a_child_that_drops_what_it_inherited_disturbs_nobody", || {
        while_transfers_run(|_| {
            for _ in 0..50 {
                let mut moving = Moving::new().expect("as above");
                let map = Map::filled(4, 3);
                let hold = moving.hold(map.ptr(), map.len()).unwrap();
                // Under way when the child is made.
                moving.mover.start_write(0, hold.key(), map.ptr(), map.len()).unwrap();
                // SAFETY: as in `support::child::fork`.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    let clone = hold.clone();
                    drop((hold, clone));
                    let refused = moving.mover.finish(1, |_, _| ());
                    drop(moving);
                    // SAFETY: ends the child; handlers run.
                    unsafe { libc::exit(i32::from(refused.is_ok())) }
                }
                assert!(reap_within(child, LONG).expect("it hangs").success());
                moving.mover.finish(1, |_, moved| assert_eq!(moved.unwrap(), map.len())).unwrap();
                assert_eq!(moving.mover.lane(0)[..map.len()], map.bytes());
                assert_eq!(moving.cache.provider().registered(), 1);
                drop(hold);
                moving.close();
            }
        });
    });
}

/// posix_spawn, which is vfork and exec; and fork and exec.
#[test]
fn spawning_programs_while_transfers_run() {
    in_own_process("spawning_programs_while_transfers_run", || {
        while_transfers_run(|traffic| {
            for n in 0..100 {
                let mut command = Command::new("/bin/true");
                if n % 2 == 0 {
                    // SAFETY: the closure does nothing; that it exists makes std fork and exec.
                    unsafe { command.pre_exec(|| Ok(())) };
                }
                assert!(command.status().expect("/bin/true runs").success());
            }
            assert!(traffic.transfers.load(Ordering::Relaxed) > 0);
        });
    });
}

/// What a child that shares memory does: it ends without touching libc.
extern "C" fn sleep_and_end(_: *mut libc::c_void) -> libc::c_int {
    // SAFETY: raw calls on a stack of its own, with nothing but integers.
    unsafe {
        let time = libc::timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        libc::syscall(libc::SYS_nanosleep, &raw const time, 0);
        libc::syscall(libc::SYS_exit, 0);
    }
    0
}

/// Replaces the two pages at the address it is given by fresh ones, and ends.
extern "C" fn replace_and_end(at: *mut libc::c_void) -> libc::c_int {
    let (rw, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    // SAFETY: raw calls; the pages are the test's, which looks at them only after this has ended.
    unsafe {
        libc::syscall(libc::SYS_mmap, at, 2 * PAGE_SIZE, rw, flags, -1, 0);
        libc::syscall(libc::SYS_exit, 0);
    }
    0
}

/// A process that shares this one's memory (`CLONE_VM` without `CLONE_THREAD`).
fn clone_sharing_memory(body: extern "C" fn(*mut libc::c_void) -> libc::c_int, argument: *mut u8) {
    let stack = Map::filled(16, 0);
    let top = stack.ptr().wrapping_add(stack.len());
    // SAFETY: the stack is the child's until it has ended, which is waited for; it uses no libc state.
    let child = unsafe { libc::clone(body, top.cast(), libc::CLONE_VM | libc::SIGCHLD, argument.cast()) };
    assert!(child > 0, "{}", std::io::Error::last_os_error());
    assert!(reap_within(child, LONG).expect("it hangs").success());
}

#[test]
fn a_process_that_shares_memory_is_no_fork() {
    in_own_process("a_process_that_shares_memory_is_no_fork", || {
        while_transfers_run(|_| {
            let mut moving = Moving::new().expect("as above");
            let map = Map::filled(8, 6);
            for n in 0..60u8 {
                map.fill(n);
                assert_eq!(moving.send(map.ptr(), map.len()), vec![n; map.len()]);
                clone_sharing_memory(sleep_and_end, std::ptr::null_mut());
                assert_eq!(moving.send(map.ptr(), map.len()), vec![n; map.len()], "it goes on as before");
                // Its changes are changes of our memory, and seen.
                clone_sharing_memory(replace_and_end, map.ptr());
                let mut now = vec![n; map.len()];
                now[..2 * PAGE_SIZE].fill(0);
                assert_eq!(moving.send(map.ptr(), map.len()), now, "stale bytes");
            }
            moving.close();
        });
    });
}

/// Made without libc, so no handler closes the descriptors that it inherits. It must hold up nobody, also
/// after the parent's cache is gone.
#[test]
fn a_child_that_bypasses_libc_holds_up_nobody() {
    in_own_process("a_child_that_bypasses_libc_holds_up_nobody", || {
        let Some(mut moving) = Moving::new() else { return };
        let map = Map::filled(8, 6);
        assert_eq!(moving.send(map.ptr(), map.len()), map.bytes());
        // SAFETY: raw clone with nothing shared, as fork; the child makes raw calls only.
        let child = unsafe {
            let child = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32;
            if child == 0 {
                let time = libc::timespec { tv_sec: 60, tv_nsec: 0 };
                libc::syscall(libc::SYS_nanosleep, &raw const time, 0);
                libc::syscall(libc::SYS_exit, 0);
            }
            child
        };
        let worker = std::thread::spawn(move || {
            map.unmap_and_map_again();
            assert_eq!(moving.send(map.ptr(), map.len()), vec![0; map.len()]);
            moving.close();
            map.unmap_and_map_again();
        });
        let start = Instant::now();
        while !worker.is_finished() && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let hung = !worker.is_finished();
        // SAFETY: our own child; the status goes nowhere.
        unsafe { (libc::kill(child, libc::SIGKILL), libc::waitpid(child, std::ptr::null_mut(), 0)) };
        assert!(!hung, "munmap waited for the child");
        worker.join().unwrap();
    });
}
