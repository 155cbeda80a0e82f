//! `pindown doctor` in a container whose seccomp profile forbids io_uring or userfaultfd: what it says, and
//! what `auto` then takes. The filter is installed in the child, before it becomes `pindown`.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::Value;

const ALLOW: u32 = 0x7fff_0000; // SECCOMP_RET_ALLOW
const ERRNO: u32 = 0x0005_0000; // SECCOMP_RET_ERRNO
const OFFSET_OF_NUMBER: u32 = 0;

/// One instruction of classic BPF.
const fn op(code: u32, jump_true: u8, jump_false: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: jump_true, jf: jump_false, k }
}

/// Each of `calls` fails with `errno`, everything else is as it was.
fn filter(calls: &[libc::c_long], errno: i32) -> Vec<libc::sock_filter> {
    let mut program = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, OFFSET_OF_NUMBER)];
    for call in calls {
        program.push(op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, *call as u32));
        program.push(op(libc::BPF_RET | libc::BPF_K, 0, 0, ERRNO | errno as u32));
    }
    program.push(op(libc::BPF_RET | libc::BPF_K, 0, 0, ALLOW));
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

#[test]
fn doctor_prints() {
    let d = doctor_without(&[libc::SYS_io_uring_setup, libc::SYS_userfaultfd], libc::EPERM);
    println!("{d:#}");
    let _ = row(&d, "seccomp");
}
