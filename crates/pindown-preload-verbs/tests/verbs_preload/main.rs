//! Programs under `LD_PRELOAD=libpindown_verbs.so` on a device (in the lab: `cargo xtask test --only verbs-preload`).

mod program;

#[path = "../../../pindown/tests/verbs_common/mod.rs"]
mod verbs_common;

use std::collections::HashSet;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::process::Command;
use std::time::{Duration, Instant};

use pindown::provider::verbs::rc::{Endpoint, EndpointOptions, RcError, Remote, Request, Segment};
use pindown::provider::verbs::{Options, Verbs};
use program::{LOCAL_WRITE, Mr, ON_DEMAND, REMOTE_WRITE, is_preloaded, program, real};
use verbs_common::Memory;

const LEN: usize = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(20);

/// Two connected endpoints on a domain of the program's. pindown's own endpoints pass the library under test
/// by (they find libibverbs' functions in its handle), so what that stands in front of is called here.
struct Wire {
    near: ManuallyDrop<Endpoint>,
    far: ManuallyDrop<Endpoint>,
    verbs: ManuallyDrop<Verbs>,
    context: *mut c_void,
    pd: *mut c_void,
}

impl Wire {
    fn new(device: &str) -> Self {
        let context = program().open(device);
        let pd = program().domain(context);
        // SAFETY: a live domain until the drop below.
        let verbs = unsafe { Verbs::from_pd(pd, Options::default()) }.unwrap();
        let (near, far) = Endpoint::pair(&verbs, &EndpointOptions::default()).unwrap();
        let [near, far] = [near, far].map(ManuallyDrop::new);
        Self { near, far, verbs: ManuallyDrop::new(verbs), context, pd }
    }

    fn pd(&self) -> *mut c_void {
        self.pd
    }

    /// Writes `from`, registered as `mr`, to `to`.
    fn write(&self, from: &Memory, mr: *const Mr, to: &Memory, rkey: u32) -> Result<u32, RcError> {
        // SAFETY: a live registration.
        let lkey = unsafe { (*mr).lkey };
        let segment = Segment { addr: from.addr.addr(), len_bytes: from.len as u32, lkey };
        let remote = Remote { addr: to.addr.addr() as u64, rkey };
        // SAFETY: the registration lives until the transfer is over; both are memory of the test.
        unsafe { self.near.transfer(Request::Write(remote), segment, (), TIMEOUT) }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // SAFETY: dropped once, here.
        unsafe {
            ManuallyDrop::drop(&mut self.near);
            ManuallyDrop::drop(&mut self.far);
            ManuallyDrop::drop(&mut self.verbs);
        }
        if !std::thread::panicking() {
            assert_eq!(program().end_domain(self.pd), 0, "everything was deregistered");
            assert_eq!(program().close(self.context), 0);
        }
    }
}

/// Ends a test where the library is not preloaded or there is no device.
macro_rules! device_or_skip {
    () => {
        match verbs_common::device().filter(|_| is_preloaded()) {
            Some(device) => device,
            None => return println!("skipped: wants a verbs device and LD_PRELOAD=libpindown_verbs.so"),
        }
    };
}

/// What a run of `register, send, deregister` took.
struct Run {
    registering: Duration,
    keys: HashSet<u32>,
}

/// `messages` messages, each registered for itself, the memory replaced before every tenth.
fn register_per_message(wire: &Wire, calls: &program::Verbs, messages: usize) -> Run {
    let (buffer, target) = (Memory::new(LEN), Memory::new(LEN));
    let to = real().register(wire.pd(), target.addr, LEN, LOCAL_WRITE | REMOTE_WRITE);
    let mut run = Run { registering: Duration::ZERO, keys: HashSet::new() };
    for i in 0..messages {
        if i % 10 == 0 {
            buffer.remap();
        }
        buffer.fill(i as u8);
        let begin = Instant::now();
        let mr = calls.register(wire.pd(), buffer.addr, LEN, LOCAL_WRITE);
        run.registering += begin.elapsed();
        // SAFETY: live registrations.
        let (lkey, rkey) = unsafe { ((*mr).lkey, (*to).rkey) };
        run.keys.insert(lkey);
        wire.write(&buffer, mr, &target, rkey).expect("a transfer");
        assert!(target.bytes() == buffer.bytes(), "message {i} is wrong");
        let begin = Instant::now();
        calls.deregister(mr);
        run.registering += begin.elapsed();
    }
    real().deregister(to);
    run
}

#[test]
fn a_program_that_registers_each_message_sends_right_bytes_with_a_tenth_of_the_registrations() {
    let wire = Wire::new(&device_or_skip!());
    let messages = 60;
    let run = register_per_message(&wire, program(), messages);
    println!("{messages} messages, {} registrations", run.keys.len());
    assert!(run.keys.len() <= messages / 10 + 1, "{}", run.keys.len());
}

/// Of one run, so that the machine's speed does not matter.
#[test]
#[ignore = "compares times: build it with optimisations"]
fn registering_takes_a_tenth_of_the_time() {
    let wire = Wire::new(&device_or_skip!());
    let messages = 400;
    let plain = register_per_message(&wire, real(), messages);
    let cached = register_per_message(&wire, program(), messages);
    let of = |run: &Run| format!("{} registrations, {:?} in calls", run.keys.len(), run.registering);
    let ratio = plain.registering.as_secs_f64() / cached.registering.as_secs_f64();
    println!("plain: {}; preloaded: {}; ratio {ratio:.1}", of(&plain), of(&cached));
    assert!(cached.keys.len() <= messages / 10 + 1);
    assert!(ratio >= 10.0, "{ratio}");
}

#[test]
fn a_remote_write_after_the_programs_deregistration_fails() {
    let wire = Wire::new(&device_or_skip!());
    let (source, target) = (Memory::new(LEN), Memory::new(LEN));
    source.fill(1);
    let from = program().register(wire.pd(), source.addr, LEN, 0);
    let to = program().register(wire.pd(), target.addr, LEN, LOCAL_WRITE | REMOTE_WRITE);
    // SAFETY: a live registration.
    let rkey = unsafe { (*to).rkey };
    wire.write(&source, from, &target, rkey).expect("while it is registered");
    assert!(target.bytes() == source.bytes());
    program().deregister(to);
    target.fill(9);
    let kept = target.bytes();
    let refused = wire.write(&source, from, &target, rkey).expect_err("after ibv_dereg_mr");
    assert!(matches!(refused, RcError::Work { .. }), "{refused:?}");
    assert!(target.bytes() == kept);
    program().deregister(from);
}

#[test]
fn each_user_of_a_registration_has_a_pointer_and_the_domain_is_busy_until_the_last() {
    let device = device_or_skip!();
    let context = program().open(&device);
    let pd = program().domain(context);
    let memory = Memory::new(LEN);
    let all: Vec<_> = (0..3).map(|_| program().register(pd, memory.addr, LEN, LOCAL_WRITE)).collect();
    // SAFETY: live registrations.
    let seen: Vec<_> =
        all.iter().map(|mr| unsafe { ((**mr).lkey, (**mr).pd, (**mr).addr, (**mr).length) }).collect();
    assert!(seen.iter().all(|s| *s == (seen[0].0, pd, memory.addr.cast(), LEN)), "{seen:?}");
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 3);
    for mr in all {
        assert_eq!(program().end_domain(pd), libc::EBUSY);
        program().deregister(mr);
    }
    assert_eq!(program().end_domain(pd), 0, "what is only cached does not keep the domain");
    // The next domain may be at the same address: nothing of the first is left.
    let pd = program().domain(context);
    program().deregister(program().register(pd, memory.addr, LEN, LOCAL_WRITE));
    assert_eq!(program().close(context), 0, "also with a domain and cached registrations open");
}

#[test]
fn what_is_not_understood_is_libibverbs_own() {
    let device = device_or_skip!();
    let wire = Wire::new(&device);
    let memory = Memory::new(LEN);
    let mut kinds = vec![LOCAL_WRITE | REMOTE_WRITE];
    match verbs_common::has_on_demand(&device) {
        true => kinds.push(LOCAL_WRITE | ON_DEMAND),
        false => println!("skipped for on-demand paging, which {device} lacks"),
    }
    for access in kinds {
        // SAFETY: a live domain and memory of the test.
        let twice: Vec<_> = (0..2).map(|_| program().register(wire.pd(), memory.addr, LEN, access)).collect();
        // SAFETY: live registrations.
        let keys: HashSet<_> = twice.iter().map(|mr| unsafe { (**mr).lkey }).collect();
        assert_eq!(keys.len(), 2, "two registrations, not one");
        twice.into_iter().for_each(|mr| program().deregister(mr));
    }
}

#[test]
fn a_reregistered_one_becomes_a_registration_of_its_own() {
    const TRANSLATION: i32 = 1;
    let wire = Wire::new(&device_or_skip!());
    let (first, second, target) = (Memory::new(LEN), Memory::new(2 * LEN), Memory::new(2 * LEN));
    second.fill(3);
    let to = program().register(wire.pd(), target.addr, target.len, LOCAL_WRITE | REMOTE_WRITE);
    let mr = program().register(wire.pd(), first.addr, LEN, LOCAL_WRITE);
    assert_eq!(program().reregister(mr, 1 << 9, (second.addr, 1), 0), -1, "an unknown flag");
    assert_eq!(program().reregister(mr, TRANSLATION, (second.addr, second.len), 0), 0);
    // SAFETY: live registrations.
    let ((addr, len), rkey) = unsafe { (((*mr).addr, (*mr).length), (*to).rkey) };
    assert_eq!((addr, len), (second.addr.cast(), second.len));
    wire.write(&second, mr, &target, rkey).expect("a transfer from the new range");
    assert!(target.bytes() == second.bytes());
    assert_eq!(program().reregister(mr, TRANSLATION, (first.addr, LEN), 0), 0, "and again");
    program().deregister(mr);
    program().deregister(to);
}

#[test]
fn threads_register_while_others_change_their_memory() {
    let wire = Wire::new(&device_or_skip!());
    let pd = wire.pd().expose_provenance();
    let churn = move || {
        let pd = std::ptr::with_exposed_provenance_mut(pd);
        let memory = Memory::new(LEN);
        for i in 0..200 {
            let mr = program().register(pd, memory.addr, LEN - (i % 7) * 4096, LOCAL_WRITE);
            if i % 5 == 0 {
                memory.remap();
            }
            program().deregister(mr);
        }
    };
    std::thread::scope(|s| (0..4).for_each(|_| _ = s.spawn(churn)));
}

/// Children inherit the tables of their parent and must neither use nor wait for them.
#[test]
fn forked_children_end_and_the_parent_goes_on() {
    let device = device_or_skip!();
    let wire = Wire::new(&device);
    let memory = Memory::new(LEN);
    let held = program().register(wire.pd(), memory.addr, LEN, LOCAL_WRITE);
    for _ in 0..5 {
        // SAFETY: the child calls what is async-signal-safe or under test, and ends by _exit.
        match unsafe { libc::fork() } {
            0 => {
                let context = program().open(&device);
                let pd = program().domain(context);
                let own = Memory::new(LEN);
                program().deregister(program().register(pd, own.addr, LEN, LOCAL_WRITE));
                let good = program().end_domain(pd) == 0 && program().close(context) == 0;
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(if good { 7 } else { 8 }) };
            }
            child => {
                let mut status = 0;
                // SAFETY: the child above.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(libc::WEXITSTATUS(status), 7, "{status:#x}");
            }
        }
        program().deregister(program().register(wire.pd(), memory.addr, LEN, LOCAL_WRITE));
    }
    assert!(Command::new("true").status().unwrap().success(), "the environment goes on to children");
    program().deregister(held);
}

/// Run by the next test in a process of its own: leaves registrations, domains and a thread behind.
#[test]
#[ignore = "a part of another test"]
fn leaves_everything_open() {
    extern "C" fn late() {
        // In an exit handler: after some libraries' own.
        let memory = Memory::new(LEN);
        let pd = std::ptr::with_exposed_provenance_mut(PD.load(std::sync::atomic::Ordering::Acquire));
        program().deregister(program().register(pd, memory.addr, LEN, LOCAL_WRITE));
    }
    static PD: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    // SAFETY: plain functions; the handlers run in reverse order.
    unsafe { libc::atexit(late) };
    let wire = Box::leak(Box::new(Wire::new(&device_or_skip!())));
    PD.store(wire.pd().expose_provenance(), std::sync::atomic::Ordering::Release);
    let memory = Box::leak(Box::new(Memory::new(LEN)));
    program().register(wire.pd(), memory.addr, LEN, LOCAL_WRITE);
    program().register(wire.pd(), memory.addr, LEN, LOCAL_WRITE | REMOTE_WRITE);
    // SAFETY: a library of the program's; closing it leaves it mapped.
    unsafe {
        let own = libc::dlopen(c"libpindown_verbs.so".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        (!own.is_null()).then(|| (libc::dlclose(own), libc::dlclose(own)));
    }
    // SAFETY: as above.
    unsafe { libc::atexit(late) };
    let pd = wire.pd().expose_provenance();
    std::thread::spawn(move || {
        let (pd, memory) = (std::ptr::with_exposed_provenance_mut(pd), Memory::new(LEN));
        loop {
            program().deregister(program().register(pd, memory.addr, LEN, LOCAL_WRITE));
        }
    });
}

#[test]
fn a_program_that_leaves_everything_open_ends() {
    let _ = device_or_skip!();
    for _ in 0..2 {
        let mut run = Command::new("/proc/self/exe");
        run.args(["leaves_everything_open", "--ignored", "--exact"]);
        let begin = Instant::now();
        let mut child = run.spawn().unwrap();
        while child.try_wait().unwrap().is_none() && begin.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let status = child.try_wait().unwrap().expect("it hangs at its end");
        assert!(status.success(), "{status}");
    }
}
