//! dlclose(3) of a library that embeds pindown, with its threads running: the library stays.
#![cfg(all(feature = "io-uring", feature = "uffd"))]

mod support;

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use support::child::{again, ended_within, role};

/// Where cargo puts the example of that name, seen from this test.
fn library() -> Option<PathBuf> {
    let exe = std::env::current_exe().ok()?;
    let path = exe.parent()?.parent()?.join("examples/libplugin.so");
    path.exists().then_some(path)
}

struct Library(*mut c_void);

impl Library {
    fn open(path: &CStr) -> Self {
        // SAFETY: a library of ours; loading it runs no code but std's.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{path:?} does not load");
        Self(handle)
    }

    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is open.
        let at = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!at.is_null(), "{name:?}");
        at
    }

    fn start(&self) -> i32 {
        // SAFETY: `examples/plugin.rs` defines it so.
        let start: extern "C" fn() -> i32 = unsafe { std::mem::transmute(self.symbol(c"plugin_start")) };
        start()
    }

    fn send(&self, byte: u8) {
        // SAFETY: `examples/plugin.rs` defines it so.
        let send: extern "C" fn(u8) -> i32 = unsafe { std::mem::transmute(self.symbol(c"plugin_send")) };
        assert_eq!(send(byte), 0, "wrong bytes");
    }

    fn stop(&self) {
        // SAFETY: `examples/plugin.rs` defines it so.
        let stop: extern "C" fn() = unsafe { std::mem::transmute(self.symbol(c"plugin_stop")) };
        stop();
    }

    fn close(self) {
        // SAFETY: opened above; nothing of it is used by this program afterwards.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

/// What its threads and handlers meet after `dlclose`: changes of armed memory, a fork, the end.
fn life_goes_on() {
    for round in 0..20 {
        drop(vec![round; 1 << 20]); // unmapped: its reader thread must answer
        std::thread::sleep(Duration::from_millis(1));
    }
    let child = support::child::fork(|| ());
    assert!(support::child::reap_within(child, Duration::from_secs(20)).expect("it hangs").success());
}

fn scenario(role: &str, path: &CStr) {
    for round in 0..3u8 {
        let library = Library::open(path);
        // From a thread that ends: thread-local values of ours would keep the library too.
        let users = std::thread::scope(|s| s.spawn(|| life_inside(&library, round, role)).join().unwrap());
        if !users {
            return println!("skipped: no io_uring or userfaultfd here");
        }
        if role == "gone" {
            wait_for_threads_to_end();
        }
        library.close();
        assert!(is_mapped(path), "{role}: unloaded, although threads and handlers of it may be left");
        life_goes_on();
    }
}

/// False where this machine cannot.
fn life_inside(library: &Library, round: u8, role: &str) -> bool {
    if library.start() != 0 {
        return false;
    }
    (0..20).for_each(|n| library.send(round ^ n));
    if role != "running" {
        library.stop();
    }
    true
}

/// The library's threads bear its name.
fn wait_for_threads_to_end() {
    let names = || std::fs::read_dir("/proc/self/task").unwrap().flatten().map(|t| t.path().join("comm"));
    let is_ours =
        |comm: PathBuf| std::fs::read_to_string(comm).is_ok_and(|name| name.starts_with("pindown-"));
    for _ in 0..10_000 {
        if !names().any(is_ours) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the library's threads do not end");
}

fn is_mapped(path: &CStr) -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains(path.to_str().unwrap())
}

// SAFETY: a handle of dlopen(3), which is thread-safe.
unsafe impl Sync for Library {}

#[test]
fn a_library_with_threads_may_be_closed() {
    let Some(library) = library() else {
        return println!("skipped: cargo build --example plugin, and run this where cargo put it");
    };
    let path = CString::new(library.as_os_str().as_bytes()).unwrap();
    match role() {
        Some(role) => scenario(&role, &path),
        None => ["running", "stopped", "gone"].iter().for_each(|role| {
            let mut child = again("a_library_with_threads_may_be_closed", role).spawn().unwrap();
            let status =
                ended_within(&mut child, Duration::from_secs(60)).unwrap_or_else(|| panic!("{role}: hangs"));
            assert!(status.success(), "{role}: {status}");
        }),
    }
}
