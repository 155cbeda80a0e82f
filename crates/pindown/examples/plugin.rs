//! A shared library that embeds pindown: what `dlopen(3)` and `dlclose(3)` see. `tests/plugin.rs` loads it.
#![allow(missing_docs)]

use std::sync::Mutex;

use pindown::provider::io_uring::{Mover, UringProvider};
use pindown::{Access, Builder, Cache, MonitorChoice, Registration};

const BYTES: usize = 64 << 10;

struct Plugin {
    mover: Mover,
    cache: Cache<UringProvider>,
    held: Registration<UringProvider>,
}

static PLUGIN: Mutex<Option<Plugin>> = Mutex::new(None);

/// 0 when it runs, 1 when this machine lacks what it takes.
#[unsafe(no_mangle)]
extern "C" fn plugin_start() -> i32 {
    let Ok(mover) = Mover::new(1, BYTES) else { return 1 };
    let Ok(provider) = UringProvider::new(mover.ring()) else { return 1 };
    let Ok(cache) = Builder::new(provider).monitor(MonitorChoice::Uffd).build() else { return 1 };
    let kept: &'static [u8] = vec![1; BYTES].leak();
    // SAFETY: it is only sent from.
    let Ok(held) = (unsafe { cache.acquire(kept.as_ptr(), kept.len(), Access::READ) }) else { return 1 };
    let Ok(mut plugin) = PLUGIN.lock() else { return 1 };
    *plugin = Some(Plugin { mover, cache, held });
    0
}

/// 0 when the device sends what memory holds, which comes and goes.
#[unsafe(no_mangle)]
extern "C" fn plugin_send(byte: u8) -> i32 {
    let Ok(mut guard) = PLUGIN.lock() else { return 1 };
    let Some(plugin) = &mut *guard else { return 1 };
    let memory = vec![byte; BYTES];
    // SAFETY: it is only sent from.
    let hold = unsafe { plugin.cache.acquire(memory.as_ptr(), memory.len(), Access::READ) };
    let Ok(hold) = hold else { return 1 };
    let sent = plugin.mover.write_fixed(hold.key(), memory.as_ptr(), memory.len());
    i32::from(!sent.is_ok_and(|sent| sent == memory))
}

/// Drops everything; the threads end a little later.
#[unsafe(no_mangle)]
extern "C" fn plugin_stop() {
    let plugin = PLUGIN.lock().ok().and_then(|mut plugin| plugin.take());
    if let Some(Plugin { mover, cache, held }) = plugin {
        drop(held);
        drop(cache);
        drop(mover);
    }
}
