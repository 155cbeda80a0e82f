//! Memory that is mapped, registered, sent from and unmapped again and again at one address: nothing grows.
#![cfg(all(feature = "io-uring", feature = "uffd"))]

mod support;

use pindown::provider::io_uring::{Mover, UringProvider};
use pindown::{Access, Builder, MonitorChoice, PAGE_SIZE};
use support::{Map, in_own_process, status_kib};

const PAGES: usize = 4;

/// A million with PINDOWN_LONG set.
fn cycles() -> usize {
    if std::env::var_os("PINDOWN_LONG").is_some() { 1_000_000 } else { 30_000 }
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

#[test]
fn cycles_at_one_address_leave_nothing() {
    in_own_process("cycles_at_one_address_leave_nothing", || {
        let Ok(mut mover) = Mover::new(1, PAGES * PAGE_SIZE) else {
            return println!("skipped: no io_uring here");
        };
        let provider = UringProvider::new(mover.ring()).unwrap();
        let Ok(cache) = Builder::new(provider).monitor(MonitorChoice::Uffd).build() else {
            return println!("skipped: no userfaultfd here");
        };
        let map = Map::filled(PAGES, 1);
        let (cycles, mut early) = (cycles(), (0, 0));
        for cycle in 0..cycles {
            map.unmap_and_map_again();
            map.fill(cycle as u8);
            // SAFETY: only sent from; the map outlives the registration.
            let registration = unsafe { cache.acquire(map.ptr(), map.len(), Access::READ) }.unwrap();
            if cycle % 16 == 0 {
                let sent = mover.write_fixed(registration.key(), map.ptr(), map.len()).unwrap();
                assert!(sent.iter().all(|b| *b == cycle as u8), "cycle {cycle}: stale bytes");
            }
            drop(registration);
            if cycle == cycles / 10 {
                early = (status_kib("VmRSS"), mappings());
            }
        }
        let (rss_kib, maps, stats) = (status_kib("VmRSS"), mappings(), cache.stats());
        println!(
            "{cycles} cycles: RSS {} -> {rss_kib} KiB, mappings {} -> {maps}; {stats:?}",
            early.0, early.1
        );
        assert!(stats.regions_registered < 1024 && stats.regions_registered_peak <= 1024, "slots");
        assert!(rss_kib < early.0 + 4096 && maps < early.1 + 20);
        cache.close(std::time::Duration::from_secs(5)).unwrap();
    });
}
