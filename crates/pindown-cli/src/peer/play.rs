//! The transfers. Both hosts walk the same script; in each step one begins and the other serves.

use std::time::Instant;

use pindown::provider::verbs::Key;
use pindown::provider::verbs::rc::{Remote, Request};
use serde::{Deserialize, Serialize};

use super::host::{Host, Result, Stage};
use super::line::Row;
use super::{Line, Op, Script, Side};
use crate::perf::{Group, Mode};
use crate::sys::{Span, fill_pattern};
use crate::ui;

/// Each line is measured in so many turns, the others' between them.
const ROUNDS: u64 = 8;

/// The serving host's buffer is ready.
#[derive(Serialize, Deserialize)]
struct Offer {
    addr: u64,
    rkey: u32,
    /// Of the bytes in it, for READ.
    seed: u64,
}

/// The beginning host's transfer has completed.
#[derive(Serialize, Deserialize)]
struct Moved {
    /// Of the bytes that should have arrived, for WRITE and SEND.
    seed: u64,
}

/// What arrived is right.
#[derive(Serialize, Deserialize)]
struct Checked {
    right: bool,
}

/// This host's rows.
pub(super) fn run(host: &mut Host, script: &Script) -> Result<Vec<Row>> {
    let bar = ui::progress(script.groups.len() as u64 * ROUNDS, "perf");
    let mut rows = Vec::new();
    for group in &script.groups {
        let stages = script.modes.iter().map(|mode| host.prepare(group, *mode)).collect::<Result<Vec<_>>>();
        let mut stages = stages?;
        let mut lines: Vec<Vec<Line>> = script.modes.iter().map(|mode| lines_of(*mode, script)).collect();
        for round in 0..ROUNDS {
            let share = script.transfers * (round + 1) / ROUNDS - script.transfers * round / ROUNDS;
            for (stage, lines) in stages.iter_mut().zip(&mut lines) {
                for line in lines {
                    turn(host, stage, line, share)?;
                }
            }
            bar.inc(1);
        }
        stages.into_iter().try_for_each(|stage| host.put_away(stage))?;
        rows.extend(finished(host, group, lines));
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn lines_of(mode: Mode, script: &Script) -> Vec<Line> {
    script.ops.iter().map(|op| Line::new(mode, *op)).collect()
}

fn finished(host: &Host, group: &Group, lines: Vec<Vec<Line>>) -> Vec<Row> {
    lines.into_iter().flatten().map(|line| Row::new(host.side, group, line)).collect()
}

/// `share` transfers each way.
fn turn(host: &mut Host, stage: &mut Stage, line: &mut Line, share: u64) -> Result<()> {
    let before = host.stats();
    for side in [Side::Connector, Side::Listener] {
        for _ in 0..share {
            let (done, role) = match side == host.side {
                true => (begin(host, stage, line), "beginning"),
                false => (serve(host, stage, line), "serving"),
            };
            done.map_err(|what| {
                format!("{role} a {} in mode {}: {what}", line.op.name(), stage.mode.name())
            })?;
        }
    }
    if stage.mode == Mode::Cached {
        let after = host.stats();
        line.figures.cache(&before, &after);
        line.registrations += after.registrations - before.registrations;
    }
    Ok(())
}

/// One transfer that this host begins.
fn begin(host: &mut Host, stage: &mut Stage, line: &mut Line) -> Result<()> {
    let span = host.next_buffer(stage, line)?;
    let mut seed = host.next_seed();
    span.fill(seed);
    let offer: Offer = host.link.receive().map_err(|e| e.to_string())?;
    let remote = Remote { addr: offer.addr, rkey: offer.rkey };
    let request = match line.op {
        Op::Write => Request::Write(remote),
        Op::Send => Request::Send,
        Op::Read => {
            seed = offer.seed;
            Request::Read(remote)
        }
    };
    let began = Instant::now();
    let (key, held) = host.get(stage, span, line)?;
    if let Err(what) = host.transfer(request, key, span) {
        // It may still be under way: what it moves stays registered.
        std::mem::forget(held);
        return Err(what);
    }
    host.put(held, line)?;
    let time = began.elapsed();
    host.link.send(&Moved { seed }).map_err(|e| e.to_string())?;
    let right = match line.op {
        Op::Read => holds(span, seed),
        Op::Write | Op::Send => host.link.receive::<Checked>().map_err(|e| e.to_string())?.right,
    };
    line.figures.transfer(time, span.len_bytes(), right);
    Ok(())
}

/// One transfer that the other host begins.
fn serve(host: &mut Host, stage: &mut Stage, line: &mut Line) -> Result<()> {
    let span = host.next_buffer(stage, line)?;
    let seed = host.next_seed();
    span.fill(seed);
    let (key, held) = host.get(stage, span, line)?;
    let receive = match line.op {
        Op::Send => Some(host.post(Request::Receive, key, span)?),
        Op::Read | Op::Write => None,
    };
    offer(host, span, key, seed)?;
    let moved: Moved = host.link.receive().map_err(|e| e.to_string())?;
    receive.map_or(Ok(()), |id| host.wait_for(id))?;
    host.put(held, line)?;
    match line.op {
        Op::Read => Ok(()),
        Op::Write | Op::Send => {
            let right = holds(span, moved.seed);
            host.link.send(&Checked { right }).map_err(|e| e.to_string())
        }
    }
}

fn offer(host: &mut Host, span: Span, key: Key, seed: u64) -> Result<()> {
    let offer = Offer { addr: span.base() as u64, rkey: key.rkey, seed };
    host.link.send(&offer).map_err(|e| e.to_string())
}

/// Whether the CPU sees the pattern of `seed`.
fn holds(span: Span, seed: u64) -> bool {
    let mut expected = vec![0; span.len_bytes()];
    fill_pattern(&mut expected, seed);
    span.equals(&expected)
}
