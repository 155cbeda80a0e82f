//! [`Through`]: how modes async and everything get at registrations.

use std::collections::HashMap;
use std::time::Duration;

use pindown::everything::Everything;
use pindown::queue::{Completion, Done, Queue, QueueError, Submission};
use pindown::segments::Segments;
use pindown::{Access, Cache, PageRange, Provider, Registration};

use super::Mode;
use super::lane::acquire;
use crate::monitors::chain;
use crate::sys::Span;

type Result<T> = std::result::Result<T, String>;

/// A mode's own way to the cache.
pub(crate) enum Through<P: Provider> {
    /// Asks it itself.
    Directly,
    /// By the queue. With completions that came before they were waited for.
    Queue { queue: Queue<P>, arrived: HashMap<u64, Arrived<P>>, next: u64 },
    /// For keys of all memory.
    Everything(Everything<P>),
}

type Arrived<P> = std::result::Result<Done<P>, QueueError>;

/// The next transfer.
pub(crate) struct Due<P: Provider> {
    index: usize,
    submitted: Option<(u64, Submission<P>)>,
}

impl<P: Provider> Due<P> {
    /// Its buffer.
    pub(crate) fn index(&self) -> usize {
        self.index
    }
}

impl<P: Provider> Through<P> {
    pub(crate) fn new(mode: Mode, cache: &Cache<P>) -> Result<Self> {
        Ok(match mode {
            Mode::Async => {
                let queue = Queue::new(cache).map_err(|e| chain(&e))?;
                Self::Queue { queue, arrived: HashMap::new(), next: 0 }
            }
            Mode::Everything => Self::Everything(cache.everything(Access::READ_WRITE)),
            _ => Self::Directly,
        })
    }

    /// Begins to register `span` where the mode does so ahead; with `cold`, readies its pages first.
    pub(crate) fn begin(&mut self, index: usize, cold: bool, cache: &Cache<P>, span: Span) -> Result<Due<P>> {
        if cold {
            warm(cache, span)?;
        }
        let Self::Queue { queue, next, .. } = self else { return Ok(Due { index, submitted: None }) };
        *next += 1;
        // SAFETY: no Rust reference points into a span (its invariant).
        let submitted = unsafe { queue.submit(span.ptr(), span.len_bytes(), Access::READ_WRITE, *next) };
        Ok(Due { index, submitted: Some((*next, submitted.map_err(|e| chain(&e))?)) })
    }

    /// The registration that was begun. If its memory, or a neighbour's that it covers too, changed since, a
    /// new one.
    pub(crate) fn finish(&mut self, due: Due<P>, cache: &Cache<P>, span: Span) -> Result<Registration<P>> {
        let held = match (due.submitted, self) {
            (Some((_, Submission::Hit(held))), _) => held,
            (Some((id, Submission::Pending(_))), Self::Queue { queue, arrived, .. }) => {
                registered(wait_for(queue, arrived, id)?)?
            }
            _ => return acquire(cache, span),
        };
        // Any lookup makes known what changed; a stale region is no longer found by it.
        match cache.peek(span.ptr(), span.len_bytes(), Access::READ_WRITE) {
            Some(fresh) => Ok(fresh),
            None if held.is_stale() => acquire(cache, span),
            None => Ok(held), // used once, never found
        }
    }

    pub(crate) fn keys(&self, span: Span) -> Result<Segments<P>> {
        let Self::Everything(memory) = self else { return Err("no keys of all memory in this mode".into()) };
        // SAFETY: no Rust reference points into a span (its invariant).
        unsafe { memory.keys(span.ptr(), span.len_bytes()) }.map_err(|e| chain(&e))
    }
}

fn wait_for<P: Provider>(
    queue: &Queue<P>,
    arrived: &mut HashMap<u64, Arrived<P>>,
    id: u64,
) -> Result<Arrived<P>> {
    loop {
        if let Some(result) = arrived.remove(&id) {
            return Ok(result);
        }
        let completion = queue.wait(Duration::from_secs(60));
        let Completion { user_data, result } = completion.ok_or("no completion within a minute")?;
        arrived.insert(user_data, result);
    }
}

fn registered<P: Provider>(arrived: Arrived<P>) -> Result<Registration<P>> {
    match arrived.map_err(|e| chain(&e))? {
        Done::Registered(held) => Ok(held),
        _ => Err("the queue answered a submission with something else than a registration".into()),
    }
}

/// Readies the pages, and a device that faults by itself.
fn warm<P: Provider>(cache: &Cache<P>, span: Span) -> Result<()> {
    let range = PageRange::covering(span.base(), span.len_bytes()).map_err(|e| chain(&e))?;
    if let Some(stop) = pindown::queue::prefetch(range, Access::READ_WRITE).stop {
        return Err(chain(&stop));
    }
    if cache.provider().caps().coherent {
        let held = acquire(cache, span)?;
        // What the device does not ready it faults in during the transfer.
        let _ = cache.provider().prefetch(held.key(), range, Access::READ_WRITE);
    }
    Ok(())
}
