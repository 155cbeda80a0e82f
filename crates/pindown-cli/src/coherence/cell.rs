//! One cell of the table: one event on one kind of memory, in a process of its own.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::event::{Event, Group};
use super::harness::LIMIT_SECONDS;
use super::mapping::{Mapping, Memory};
use super::oracle::{self, Acquired, Device};
use super::scene::{Held, Scene};
use super::traits::Traits;
use crate::sys::{self, Arena};

/// How a cell ended; the names are part of the JSON contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// Was cached, was registered anew after the event, and moved the right bytes.
    Fresh,
    /// Still a hit, and right.
    Kept,
    /// The cache had declined to keep it; right.
    Uncached,
    /// Wrong bytes, by an event that the monitor waives by name.
    Waived,
    /// Wrong bytes.
    Stale,
    /// The kernel refuses the mapping, the event or the registration.
    Unsupported,
    /// The cell hung, crashed or could not finish.
    Error,
}

impl Outcome {
    /// Whether the event really happened to registered memory.
    pub(crate) fn executed(self) -> bool {
        !matches!(self, Self::Unsupported | Self::Error)
    }

    /// Whether it refutes the claim.
    pub(crate) fn is_bad(self) -> bool {
        matches!(self, Self::Stale | Self::Error)
    }
}

/// What a cell's process prints, as one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CellReport {
    pub(crate) outcome: Outcome,
    pub(crate) detail: String,
}

impl CellReport {
    pub(crate) fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        Self { outcome, detail: detail.into() }
    }

    /// A line of a cell's output.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

/// Plays the cell with `device`; `waived` are the events that its monitor waives.
pub(crate) fn play(
    mapping: &Mapping,
    event: &Event,
    device: &mut impl Device,
    waived: &[&str],
) -> CellReport {
    let arena = match Arena::reserve() {
        Ok(arena) => arena,
        Err(error) => return CellReport::new(Outcome::Error, format!("no address space: {error}")),
    };
    sys::die_in(LIMIT_SECONDS); // the device is ready: from here on the kernel is under test
    if mapping.traits.any(Traits::STACK) && !mapping.traits.any(Traits::THREAD) {
        return sys::with_stack_span(|span| {
            play_on(mapping.memory(span, None, Held::Nothing), arena, event, device, waived)
        });
    }
    match mapping.make(&arena) {
        Ok(memory) => play_on(memory, arena, event, device, waived),
        Err(error) => CellReport::new(Outcome::Unsupported, format!("cannot be made here: {error}")),
    }
}

fn play_on(
    memory: Memory,
    arena: Arena,
    event: &Event,
    device: &mut impl Device,
    waived: &[&str],
) -> CellReport {
    let mut scene = Scene { memory, arena };
    let result = before(&mut scene, event, device).and_then(|first| {
        change(&mut scene, event)?;
        if event.group != Group::Harmless {
            device.changed(scene.span());
        }
        after(&scene, first, device)
    });
    match result {
        Ok(report) if report.outcome == Outcome::Stale && is_waived(event, waived) => {
            CellReport { outcome: Outcome::Waived, ..report }
        }
        Ok(report) | Err(report) => report,
    }
}

fn is_waived(event: &Event, waived: &[&str]) -> bool {
    event.waiver.is_some_and(|name| waived.contains(&name))
}

/// Gets the memory registered, moves bytes through it, lets go.
fn before(scene: &mut Scene, event: &Event, device: &mut impl Device) -> Result<Acquired, CellReport> {
    let span = scene.span();
    span.fill(1);
    (event.prepare)(scene).map_err(unsupported("the preparation was refused"))?;
    let again = acquire_again(scene, device)?;
    let verdict = oracle::transfer(device, span).map_err(failed("the transfer before the event failed"))?;
    device.put();
    if !verdict.is_right() {
        return Err(CellReport::new(Outcome::Error, format!("before the event: {}", verdict.describe())));
    }
    Ok(again)
}

/// Acquires once and again: a hit the second time shows that the first was kept. Asks a few times,
/// since the address may have been used and given back moments ago, which some monitors remember.
fn acquire_again(scene: &Scene, device: &mut impl Device) -> Result<Acquired, CellReport> {
    for tries_left in (0..4).rev() {
        acquire(scene, device, "")?;
        device.put();
        let again = acquire(scene, device, "")?;
        if again.hit || tries_left == 0 {
            return Ok(again);
        }
        device.put();
        std::thread::sleep(Duration::from_millis(25));
    }
    unreachable!("the last try returns")
}

fn change(scene: &mut Scene, event: &Event) -> Result<(), CellReport> {
    if scene.memory.traits.any(Traits::READ_ONLY) {
        scene.span().protect(libc::PROT_READ).map_err(failed("mprotect failed"))?;
    }
    if scene.memory.traits.any(Traits::STACK) {
        sys::wait_until_others_sleep(); // other memory lies apart, stacks lie where the kernel maps
    }
    (event.act)(scene).map_err(unsupported("the kernel refused the event"))?;
    scene.repair().map_err(unsupported("the address could not be used again"))
}

/// New bytes at the same address, registered and moved again.
fn after(scene: &Scene, first: Acquired, device: &mut impl Device) -> Result<CellReport, CellReport> {
    let span = scene.span();
    span.fill(2);
    let second = acquire(scene, device, " after the event")?;
    let verdict = oracle::transfer(device, span).map_err(failed("the transfer after the event failed"))?;
    device.put();
    let outcome = match (verdict.is_right(), first.hit, second.hit) {
        (false, _, _) => return Ok(CellReport::new(Outcome::Stale, verdict.describe())),
        (true, false, _) => Outcome::Uncached,
        (true, true, true) => Outcome::Kept,
        (true, true, false) => Outcome::Fresh,
    };
    Ok(CellReport::new(outcome, remark(outcome, first, second)))
}

fn remark(outcome: Outcome, first: Acquired, second: Acquired) -> &'static str {
    match (outcome, first.cached, second.cached) {
        (Outcome::Fresh, _, false) => "single use for now",
        (Outcome::Uncached, true, _) => "was invalidated before the event",
        _ => "",
    }
}

fn acquire(scene: &Scene, device: &mut impl Device, when: &str) -> Result<Acquired, CellReport> {
    device
        .acquire(scene.span())
        .map_err(|error| CellReport::new(Outcome::Unsupported, format!("not registered{when}: {error}")))
}

fn unsupported(what: &'static str) -> impl Fn(std::io::Error) -> CellReport {
    move |error| CellReport::new(Outcome::Unsupported, format!("{what}: {error}"))
}

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> CellReport {
    move |error| CellReport::new(Outcome::Error, format!("{what}: {error}"))
}
