//! Subscribers of the `tracing` crate hear of registrations, evictions, refusals and changes.
#![cfg(feature = "tracing")]

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use pindown::provider::sim::{Call, Fault, Sim};
use pindown::{Access, Builder, EventKind, MonitorChoice, PageRange};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Level and message with fields of each event of the core.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<(Level, String)>>>);

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "pindown_core"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        self.0.lock().expect("no panic").push((*event.metadata().level(), text.0));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

#[test]
fn slow_paths_tell_what_they_do_and_hits_nothing() {
    let heard = Heard::default();
    tracing::subscriber::set_global_default(heard.clone()).expect("the only one");
    let sim = Sim::new();
    let builder = Builder::new(sim.clone()).monitor(MonitorChoice::Manual).widen(false).max_regions(1);
    let cache = builder.build().expect("builds");
    let memory = vec![0u8; 1 << 20];
    // SAFETY: the simulated device moves nothing.
    let acquire = |at: usize| unsafe { cache.acquire(memory[at..].as_ptr(), 4096, Access::READ) };
    let take = || std::mem::take(&mut *heard.0.lock().expect("no panic"));
    let count = |heard: &[(Level, String)], level, what: &str| {
        heard.iter().filter(|(l, text)| *l == level && text.contains(what)).count()
    };
    drop(acquire(0));
    let first = take();
    assert_eq!(count(&first, Level::DEBUG, "registered provider=\"sim\" range=0x"), 1, "{first:?}");
    drop(acquire(0));
    assert_eq!(take(), [], "a hit");
    drop(acquire(1 << 16));
    let second = take();
    assert_eq!((count(&second, Level::DEBUG, "evicted"), count(&second, Level::DEBUG, "registered")), (1, 1));
    let range = PageRange::covering(memory[1 << 16..].as_ptr().addr(), 4096).expect("a range");
    cache.notifier().invalidate(range, EventKind::Manual);
    sim.fail(Call::Register, 1, 1, Fault::Io);
    acquire(1 << 16).expect_err("told to fail");
    let third = take();
    assert_eq!(count(&third, Level::DEBUG, "stale"), 1, "{third:?}");
    assert_eq!(count(&third, Level::WARN, "registering failed"), 1, "{third:?}");
    drop(acquire(1 << 17));
    take();
    sim.fail(Call::Register, 1, 1, Fault::Memlock);
    drop(acquire(1 << 18));
    let fourth = take();
    assert_eq!(count(&fourth, Level::WARN, "budget is lower"), 1, "{fourth:?}");
}
