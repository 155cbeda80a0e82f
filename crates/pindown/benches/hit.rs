//! The hit path, for developers: `cargo bench -p pindown --bench hit`. Time of get and put together,
//! with the real generation check, policy and fence; registration is simulated.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use pindown::core::sim::Sim;
use pindown::core::{Cache, PlainHost};
use pindown::monitor::Manual;
use pindown::{Access, Config, EventKind, Host, LinuxHost, PageRange};

const LEN: usize = 4096;
/// Regions lie this far apart.
const STRIDE: usize = 32 << 10;
const BASE: usize = 0x10_0000_0000;

fn cache(host: Arc<dyn Host>, regions: usize) -> Cache<Sim> {
    let mut config = Config::default();
    config.widen = false;
    let cache = Cache::new(Sim::new(), Arc::new(Manual::new()), host, config).expect("valid");
    for n in 0..regions {
        // SAFETY: the simulated device touches no memory.
        drop(unsafe { cache.acquire(at(n), LEN, Access::READ) }.expect("nothing fails"));
    }
    cache
}

fn at(n: usize) -> *const u8 {
    std::ptr::without_provenance(BASE + n * STRIDE)
}

fn hit(cache: &Cache<Sim>, at: *const u8) {
    black_box(cache.lookup(black_box(at), LEN, Access::READ).expect("a hit"));
}

fn one_region(c: &mut Criterion) {
    let mut group = c.benchmark_group("one_region");
    let slots = cache(Arc::new(LinuxHost::new()), 1);
    group.bench_function("slots", |b| b.iter(|| hit(&slots, at(0))));
    let counted = cache(Arc::new(PlainHost::default()), 1);
    group.bench_function("counted", |b| b.iter(|| hit(&counted, at(0))));
    let held = slots.lookup(at(0), LEN, Access::READ);
    group.bench_function("slots_while_holding_another", |b| b.iter(|| hit(&slots, at(0))));
    drop(held);
    group.finish();
}

fn uniform(c: &mut Criterion) {
    let mut group = c.benchmark_group("uniform");
    for regions in [1_000, 100_000] {
        let cache = cache(Arc::new(LinuxHost::new()), regions);
        let mut state = 1u64;
        group.bench_function(BenchmarkId::from_parameter(regions), |b| {
            b.iter(|| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                hit(&cache, at((state >> 33) as usize % regions));
            });
        });
    }
    group.finish();
}

/// Another thread hits the same region, or reports changes elsewhere.
fn beside_another_thread(c: &mut Criterion) {
    let mut group = c.benchmark_group("beside");
    let cache = cache(Arc::new(LinuxHost::new()), 1);
    let elsewhere = PageRange::covering(BASE - (1 << 30), 4096).expect("in range");
    let others: [(&str, &(dyn Fn() + Sync)); 2] = [
        ("hits", &|| hit(&cache, at(0))),
        ("reports", &|| cache.notifier().invalidate(elsewhere, EventKind::Manual)),
    ];
    for (name, other) in others {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    other();
                }
            });
            group.bench_function(name, |b| b.iter(|| hit(&cache, at(0))));
            stop.store(true, Ordering::Relaxed);
        });
    }
    group.finish();
}

fn miss(c: &mut Criterion) {
    let cache = cache(Arc::new(LinuxHost::new()), 1_000);
    let range = PageRange::covering(BASE, LEN).expect("in range");
    c.bench_function("invalidate_register_put_reap", |b| {
        b.iter(|| {
            cache.invalidate(range);
            // SAFETY: the simulated device touches no memory.
            black_box(unsafe { cache.acquire(at(0), LEN, Access::READ) }.expect("nothing fails"));
            cache.drive();
        });
    });
}

criterion_group!(benches, one_region, uniform, beside_another_thread, miss);
criterion_main!(benches);
