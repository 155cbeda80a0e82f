//! `pindown doctor` in a container whose seccomp profile forbids io_uring or userfaultfd: what it says, and
//! what `auto` then takes. The filter is installed in the child, before it becomes `pindown`.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::Value;

const ALLOW: u32 = 0x7fff_0000; // SECCOMP_RET_ALLOW
const ERRNO: u32 = 0x0005_0000; // SECCOMP_RET_ERRNO
/// Offsets in `struct seccomp_data`: the call's number, and the low half of its second argument.
const NUMBER: u32 = 0;
const SECOND: u32 = 24;
/// `USERFAULTFD_IOC_NEW`, by which /dev/userfaultfd stands in for the call.
const USERFAULTFD_IOC_NEW: u32 = 0xaa00;

/// One instruction of classic BPF.
const fn op(code: u32, jump_true: u8, jump_false: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: jump_true, jf: jump_false, k }
}

const fn load(offset: u32) -> libc::sock_filter {
    op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
}

const fn skip_unless(value: u32, instructions: u8) -> libc::sock_filter {
    op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, instructions, value)
}

const fn answer(action: u32) -> libc::sock_filter {
    op(libc::BPF_RET | libc::BPF_K, 0, 0, action)
}

/// Each of `calls` fails with `errno`, everything else is as it was. Without userfaultfd(2), no device for it.
fn filter(calls: &[libc::c_long], errno: i32) -> Vec<libc::sock_filter> {
    let refuse = answer(ERRNO | errno as u32);
    let mut program = vec![load(NUMBER)];
    for call in calls {
        program.extend([skip_unless(*call as u32, 1), refuse]);
    }
    if calls.contains(&libc::SYS_userfaultfd) {
        let ioctl = libc::SYS_ioctl as u32;
        program.extend([skip_unless(ioctl, 3), load(SECOND), skip_unless(USERFAULTFD_IOC_NEW, 1), refuse]);
    }
    program.push(answer(ALLOW));
    program
}

/// On the calling thread, for good. Allocates nothing.
fn install(program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, which lives through the calls; it changes this process alone.
    let rc = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn pindown_without(calls: &[libc::c_long], errno: i32, args: &[&str]) -> std::process::Output {
    let program = filter(calls, errno);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pindown"));
    // SAFETY: between fork and exec it makes two system calls.
    unsafe { command.args(args).pre_exec(move || install(&program)) };
    command.output().expect("pindown starts")
}

fn doctor_without(calls: &[libc::c_long], errno: i32) -> Value {
    let output = pindown_without(calls, errno, &["doctor", "--json"]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The row that is called `name`, wherever it stands in the document.
fn row<'v>(document: &'v Value, name: &str) -> &'v Value {
    fn find<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
        match value {
            Value::Array(rows) => rows.iter().find_map(|r| find(r, name)),
            Value::Object(fields) if fields.get("name").is_some_and(|n| n == name) => Some(value),
            Value::Object(fields) => fields.values().find_map(|f| find(f, name)),
            _ => None,
        }
    }
    find(document, name).unwrap_or_else(|| panic!("no {name} in {document}"))
}

fn says_seccomp(row: &Value) {
    let remedy = row["remedy"].as_str().unwrap_or_default();
    assert!(remedy.contains("seccomp"), "the remedy does not name the profile: {row}");
}

#[test]
fn doctor_names_the_profile_that_forbids_io_uring() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        let report = doctor_without(&[libc::SYS_io_uring_setup], errno);
        assert_eq!(row(&report, "seccomp")["value"], "a filter is active");
        assert_eq!(row(&report, "io_uring")["standing"], "missing");
        says_seccomp(row(&report, "io_uring"));
        let provider = row(&report, "io-uring");
        assert_eq!(provider["usable"], false, "{provider}");
        says_seccomp(provider);
        assert_ne!(report["recommended"]["provider"], "io-uring");
    }
}

/// Nothing sees the address space change any more, so nothing is cached; and all still works.
#[test]
fn doctor_takes_no_monitor_that_is_forbidden() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        let report = doctor_without(&[libc::SYS_userfaultfd, libc::SYS_bpf], errno);
        assert_eq!(row(&report, "userfaultfd")["standing"], "missing");
        says_seccomp(row(&report, "userfaultfd"));
        for monitor in ["uffd", "ebpf"] {
            let monitor = row(&report, monitor);
            assert_eq!(monitor["usable"], false, "{monitor}");
            assert!(monitor["remedy"].as_str().is_some_and(|r| !r.is_empty()), "{monitor}");
        }
        says_seccomp(row(&report, "uffd"));
        assert_eq!(report["recommended"]["monitor"], "uncached");
    }
}

#[test]
fn doctor_says_what_it_costs_without_membarrier() {
    let report = doctor_without(&[libc::SYS_membarrier], libc::EPERM);
    assert_ne!(row(&report, "membarrier")["standing"], "good");
    says_seccomp(row(&report, "membarrier"));
}

#[test]
fn perf_in_such_a_container_exits_with_3_and_the_remedy() {
    let output = pindown_without(&[libc::SYS_io_uring_setup], libc::EPERM, &["perf", "--seconds", "1"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("seccomp"), "{text}");
}

/// Without the calls that monitors and holds are built on, bytes are right all the same.
#[test]
fn coherence_holds_with_what_is_left() {
    let forbidden = [libc::SYS_userfaultfd, libc::SYS_bpf, libc::SYS_membarrier];
    let args = ["coherence", "--monitor", "auto", "--mapping", "anon-private", "--event", "map-fixed"];
    let output = pindown_without(&forbidden, libc::EPERM, &args);
    match output.status.code() {
        Some(3) => println!("skipped: {}", String::from_utf8_lossy(&output.stderr)),
        status => assert_eq!(status, Some(0), "{output:?}"),
    }
}
