//! A correct registration cache in ten lines, on `pindown::watch`.
//!
//! `cargo run --example watch_cache`

use std::collections::HashMap;

use pindown::PageRange;
use pindown::watch::{Event, Watch, WatchError};

/// What a device would give for a pinned range.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Key(u64);

struct Cache {
    watch: Watch,
    keys: HashMap<PageRange, (u64, Key)>,
    seen: u64,
    registrations: u64,
}

impl Cache {
    // The ten lines. The loop is the point: what was just registered is looked up again, and used only
    // if nothing changed since before it was pinned.
    fn get(&mut self, range: PageRange) -> Result<Key, WatchError> {
        loop {
            if self.watch.generation() != self.seen {
                let mut events = Vec::new();
                self.seen = self.watch.read(&mut events);
                self.keys.retain(|_, (cookie, _)| {
                    let stale =
                        events.iter().any(|e| matches!(e, Event::Changed { cookie: c, .. } if c == cookie));
                    !stale || self.watch.unregister(*cookie).is_err()
                });
            }
            if let Some((_, key)) = self.keys.get(&range) {
                return Ok(*key);
            }
            self.registrations += 1;
            self.watch.register(range, self.registrations)?;
            self.keys.insert(range, (self.registrations, pin(range, self.registrations)));
        }
    }
}

/// Stands for `ibv_reg_mr` or `io_uring_register`.
fn pin(_: PageRange, number: u64) -> Key {
    Key(number)
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let watch = Watch::open()?;
    println!("monitor: {}", watch.monitor().name());
    let mut cache = Cache { seen: watch.generation(), watch, keys: HashMap::new(), registrations: 0 };
    let mut last = None;
    for round in 0..4 {
        let buffer = vec![round; 8 << 20]; // large: malloc maps it, and free unmaps it
        let range = PageRange::covering(buffer.as_ptr() as usize, buffer.len())?;
        let (first, again) = (cache.get(range)?, cache.get(range)?);
        assert_eq!(first, again, "nothing changed: a hit");
        assert_ne!(last, Some(first), "it was unmapped in between, at whatever address it is now");
        println!("round {round}: {range} is {first:?}");
        last = Some(first);
    }
    Ok(())
}
