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
    for round in 0..50 {
        drop(vec![round; 1 << 20]); // unmapped: its reader thread must answer
        std::thread::sleep(Duration::from_millis(1));
    }
    let child = support::child::fork(|| ());
    assert!(support::child::reap_within(child, Duration::from_secs(20)).expect("it hangs").success());
}

fn scenario(role: &str, path: &CStr) {
    for round in 0..5u8 {
        let library = Library::open(path);
        if library.start() != 0 {
            return println!("skipped: no io_uring or userfaultfd here");
        }
        (0..20).for_each(|n| library.send(round ^ n));
        match role {
            "running" => return (library.close(), life_goes_on()).1,
            "thread" => {
                // The thread has thread-local values of the library's own std.
                std::thread::scope(|s| _ = s.spawn(|| library.send(round)));
                library.stop();
                library.close();
            }
            _ => {
                library.stop();
                library.close();
            }
        }
        life_goes_on();
    }
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
        None => ["running", "stopped", "thread"].iter().for_each(|role| {
            let mut child = again("a_library_with_threads_may_be_closed", role).spawn().unwrap();
            let status =
                ended_within(&mut child, Duration::from_secs(60)).unwrap_or_else(|| panic!("{role}: hangs"));
            assert!(status.success(), "{role}: {status}");
        }),
    }
}
