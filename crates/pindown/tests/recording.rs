//! A trace says what was done: recorded by this process, read back.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pindown::provider::sim::Sim;
use pindown::trace::{Event, Op};
use pindown::{Access, Builder, MonitorChoice, PageRange};
use pindown_core::trace::BinaryReader;

fn events(path: &Path) -> Vec<Event> {
    let bytes = std::fs::read(path).expect("the trace exists");
    // The writer's first flush may be yet to come.
    BinaryReader::new(&bytes[..]).map_or(Vec::new(), |reader| reader.map_while(Result::ok).collect())
}

/// The writer works on its own time.
fn wait_for(path: &Path, count: usize) -> Vec<Event> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let events = events(path);
        if events.len() >= count || Instant::now() > end {
            return events;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One test, since a process records once.
#[test]
fn records_requests_puts_costs_and_changes_in_order() {
    let path: PathBuf = std::env::temp_dir().join(format!("pindown-recording-{}.trace", std::process::id()));
    pindown::trace::record_to(&path).expect("recording starts");
    let again = pindown::trace::record_to(&path).expect_err("once");
    assert_eq!(again.raw_os_error(), Some(libc::EALREADY));

    let cache = Builder::new(Sim::new()).monitor(MonitorChoice::Manual).widen(false).build().expect("builds");
    let memory = vec![0u8; 1 << 20];
    let (addr, len) = (memory.as_ptr(), 70_000);
    // SAFETY: the simulated device moves nothing.
    let first = unsafe { cache.acquire(addr, len, Access::READ_WRITE) }.expect("registers");
    // SAFETY: as above.
    let second = unsafe { cache.acquire(addr, len, Access::READ) }.expect("a hit");
    assert!(second.is_cached());
    drop(first);
    drop(second);
    assert!(cache.lookup(addr, len, Access::READ).is_some());
    assert!(cache.lookup(addr, len, Access::REMOTE_WRITE).is_none(), "not recorded: it found nothing");
    let range = PageRange::covering(addr.addr(), len).expect("a range");
    cache.notifier().invalidate(range, pindown::EventKind::Manual);
    assert!(cache.lookup(addr, len, Access::READ).is_none());
    assert_eq!((cache.stats().hits, cache.stats().registrations), (2, 1), "recording changes nothing");

    let events = wait_for(&path, 8);
    let acquire = |id, access| Op::Acquire { id, addr: addr.addr() as u64, len: len as u64, access };
    let ops: Vec<_> = events.iter().map(|e| e.op).collect();
    assert!(matches!(ops[1], Op::Registered { id: 1, cost_ns } if cost_ns > 0), "{ops:?}");
    let others: Vec<_> = ops.iter().copied().filter(|op| !matches!(op, Op::Registered { .. })).collect();
    let changed = Op::Invalidate { addr: range.start() as u64, len: range.len_bytes() as u64 };
    let expected = [
        acquire(1, Access::READ_WRITE),
        acquire(2, Access::READ),
        Op::Put { id: 1 },
        Op::Put { id: 2 },
        acquire(3, Access::READ),
        Op::Put { id: 3 },
        changed,
    ];
    assert_eq!(others, expected);
    assert!(events.is_sorted_by_key(|e| e.t_ns));
    assert_eq!(pindown::trace::dropped(), Some(0));
    std::fs::remove_file(path).expect("its own file");
}
