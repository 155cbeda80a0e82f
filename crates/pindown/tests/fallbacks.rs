//! Where address space or membarrier is not to be had, the cache does without: under `ulimit -v` (no flat
//! table, no flat records), and under a valgrind that does not know membarrier(2) (holds are counted; 3.19
//! knows it). Memory errors fail the test.

use std::process::Command;
use std::sync::Arc;

use pindown::core::Cache;
use pindown::core::sim::Sim;
use pindown::monitor::Manual;
use pindown::{Access, Config, Host, LinuxHost, PAGE_SIZE, PageRange};

const REGIONS: usize = 200;
const BASE: usize = 0x10_0000_0000;

/// Runs `exercise` alone in a process that `program` starts. The output, if it succeeded.
fn exercised_by(program: &str, args: &[&str]) -> Result<String, String> {
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let mut command = Command::new(program);
    command.args(args).args([own, "--exact", "exercise", "--ignored", "--nocapture"]);
    let output = command.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(said) } else { Err(said) }
}

#[test]
fn without_address_space() {
    // 1 GiB: less than the table's reservation.
    let limited = ["-c", "ulimit -v 1048576; exec \"$0\" \"$@\""];
    let said = exercised_by("sh", &limited).unwrap_or_else(|said| panic!("{said}"));
    assert!(said.contains("flat: false"), "{said}");
}

#[test]
fn under_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed");
        return;
    }
    let quiet = ["--quiet", "--error-exitcode=9"];
    let said = exercised_by("valgrind", &quiet).unwrap_or_else(|said| panic!("{said}"));
    assert!(said.contains("fence: "), "{said}");
}

#[test]
#[ignore = "run by the others, in processes of their own"]
fn exercise() {
    let host = Arc::new(LinuxHost::new());
    let flat = host.reserve(1 << 30).map(|reservation| {
        // SAFETY: reserved just now, and nothing refers to it.
        unsafe { host.release(reservation) };
    });
    println!("flat: {} fence: {}", flat.is_some(), host.has_asymmetric_fence());
    let sim = Sim::new();
    let mut config = Config::default();
    config.widen = false;
    let cache = Cache::new(sim.clone(), Arc::new(Manual::new()), host, config).unwrap();
    // Some to a leaf, some alone, some in many chunks.
    for (stride, pages) in [(8, 2), (1024, 1), (4096, 2048)] {
        round(&cache, stride * PAGE_SIZE, pages * PAGE_SIZE);
    }
    drop(cache);
    assert!(sim.books().closed(), "{:?}", sim.books());
}

fn round(cache: &Cache<Sim>, stride: usize, len: usize) {
    let at = |n: usize| std::ptr::without_provenance(BASE + n * stride);
    let lookup = |n: usize| cache.lookup(at(n), len, Access::READ);
    for n in 0..REGIONS {
        // SAFETY: a simulated device touches no memory.
        drop(unsafe { cache.acquire(at(n), len, Access::READ) }.unwrap());
    }
    let held: Vec<_> = (0..REGIONS).map(|n| lookup(n).expect("a hit")).collect();
    assert!(held.iter().enumerate().all(|(n, r)| r.range().start() == BASE + n * stride));
    let whole = PageRange::new(BASE, BASE + REGIONS * stride).unwrap();
    assert_eq!(cache.invalidate(whole), REGIONS);
    assert!((0..REGIONS).all(|n| lookup(n).is_none()));
    assert!(held.iter().all(|r| r.is_stale()));
    drop(held);
    assert_eq!(cache.drive(), REGIONS);
}
