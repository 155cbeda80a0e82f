//! The lab's command itself: what goes in comes out unchanged. Each test boots a guest, so that
//! they are ignored in a plain `cargo test`; `cargo xtask test` runs them where a guest can boot.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn vm(args: &[&str], command: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_xtask"));
    c.args(["vm", "--quiet"]).args(args).arg("--").args(command).stdin(Stdio::null());
    c
}

fn run(args: &[&str], command: &[&str]) -> Output {
    vm(args, command).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
#[ignore = "boots a guest: cargo xtask test"]
fn status_streams_and_words_come_through() {
    let script = "printf '%s|' \"$@\"; echo to stderr >&2; echo again >/dev/stderr; exit 7";
    let out = run(&[], &["sh", "-c", script, "sh", "two words", "it's", "$HOME", "", "a*"]);
    assert_eq!(out.status.code(), Some(7));
    assert_eq!(text(&out.stdout), "two words|it's|$HOME||a*|");
    assert_eq!(text(&out.stderr), "to stderr\nagain\n");
}

#[test]
#[ignore = "boots a guest: cargo xtask test"]
fn a_signal_is_128_and_its_number() {
    let out = run(&[], &["kill -SEGV $$"]);
    assert_eq!(out.status.code(), Some(128 + 11), "{}", text(&out.stderr));
}

#[test]
#[ignore = "boots a guest: cargo xtask test"]
fn long_and_binary_output_comes_through_whole() {
    // 1 MiB on each stream at once, every byte value in it, and no newline at the end.
    let block: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let file = std::env::temp_dir().join(format!("lab-long-{}", std::process::id()));
    std::fs::write(&file, &block).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    let script = format!("cat {name} >&2 & cat {name}; wait");
    let out = run(&["--file", file.to_str().unwrap()], &[&script]);
    std::fs::remove_file(&file).unwrap();
    assert!(out.status.success());
    assert!(out.stdout == block, "{} bytes on stdout", out.stdout.len());
    assert!(out.stderr == block, "{} bytes on stderr", out.stderr.len());
}

#[test]
#[ignore = "boots a guest: cargo xtask test"]
fn time_is_up_with_the_console_shown() {
    // Long enough for a boot and the command's first line: how long that is depends on the machine.
    for seconds in [40, 120, 280] {
        let start = Instant::now();
        let out = run(&["--timeout", &seconds.to_string()], &["echo before; sleep 1000"]);
        let (took, err) = (start.elapsed(), text(&out.stderr));
        assert_eq!(out.status.code(), Some(124));
        assert!(err.contains(&format!("time is up after {seconds} s")), "{err}");
        assert!(took.as_secs() >= seconds && took.as_secs() < seconds + 60, "{took:?}");
        if !out.stdout.is_empty() {
            assert_eq!(text(&out.stdout), "before\n");
            assert!(err.contains("the command runs"), "{err}");
            return;
        }
    }
    panic!("no line of the command within 280 s");
}

#[test]
#[ignore = "boots a guest: cargo xtask test"]
fn a_silent_panic_boots_once_more_and_a_later_one_does_not() {
    const AGAIN: &str = "booting once more";
    let silent = run(&[], &["echo c >/proc/sysrq-trigger; sleep 10"]);
    let err = text(&silent.stderr);
    assert_eq!(silent.status.code(), Some(125));
    assert!(err.matches(AGAIN).count() == 1 && err.contains("Kernel panic"), "{err}");

    let loud = run(&[], &["echo line; sleep 1; echo c >/proc/sysrq-trigger; sleep 10"]);
    let err = text(&loud.stderr);
    assert_eq!(text(&loud.stdout), "line\n");
    assert!(!err.contains(AGAIN) && err.contains("Kernel panic"), "{err}");
}

#[test]
#[ignore = "boots a guest: cargo xtask test"]
fn side_by_side_runs_see_their_own_files() {
    let dirs: Vec<_> = ["one", "two"].iter().map(|n| directory_with(n)).collect();
    let start = |dir: &std::path::Path| {
        let mut c = vm(&["--file", dir.to_str().unwrap()], &["cat name; ls"]);
        c.stdout(Stdio::piped()).spawn().unwrap()
    };
    let runs: Vec<_> = dirs.iter().map(|d| start(d)).collect();
    for (run, name) in runs.into_iter().zip(["one", "two"]) {
        let out = run.wait_with_output().unwrap();
        assert_eq!(text(&out.stdout), format!("{name}name\n"));
    }
    dirs.iter().for_each(|d| std::fs::remove_dir_all(d).unwrap());
}

fn directory_with(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("lab-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("name"), name).unwrap();
    dir
}

#[test]
#[ignore = "boots a guest: cargo xtask test"]
fn what_is_left_in_the_background_does_not_hold_up_the_end() {
    let start = Instant::now();
    let out = run(&[], &["sleep 1000 & echo done"]);
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(0), "done\n".into()));
    assert!(start.elapsed() < Duration::from_secs(250), "{:?}", start.elapsed());
}

#[test]
#[ignore = "boots a guest: cargo xtask test"]
fn no_guest_outlives_its_killed_command() {
    let mark = format!("labtest={}", std::process::id());
    let mut run = vm(&["--append", &mark], &["sleep 1000"]).stderr(Stdio::null()).spawn().unwrap();
    let qemus = || processes_with(&mark).into_iter().filter(|&p| p != run.id()).count();
    await_until(|| qemus() == 1, "qemu starts");
    run.kill().unwrap();
    await_until(|| processes_with(&mark).iter().all(|&p| p == run.id()), "qemu ends");
    run.wait().unwrap();
}

/// Processes with `mark` in their command line.
fn processes_with(mark: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter(|p: &u32| {
        let line = std::fs::read(format!("/proc/{p}/cmdline")).unwrap_or_default();
        text(&line).contains(mark)
    })
    .collect()
}

fn await_until(condition: impl Fn() -> bool, what: &str) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
