//! A thread whose stack holds the memory under test, and that ends when told.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::sys::{Span, with_stack_span};

const STACK_BYTES: usize = 1 << 20;

/// The thread, waiting.
#[derive(Debug)]
pub(crate) struct ParkedThread {
    span: Span,
    end: Sender<()>,
    handle: JoinHandle<()>,
}

impl ParkedThread {
    pub(crate) fn start() -> io::Result<Self> {
        let (tell_span, span) = channel();
        let (end, ended) = channel();
        let handle =
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || park(tell_span, ended))?;
        let span = span.recv().map_err(io::Error::other)?;
        Ok(Self { span, end, handle })
    }

    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// Ends the thread and starts another, which the C library gives the same stack; fails if not.
    pub(crate) fn replace(self) -> io::Result<Self> {
        let before = self.span;
        drop(self.end);
        self.handle.join().map_err(|_| io::Error::other("the thread panicked"))?;
        let next = Self::start()?;
        match next.span == before {
            true => Ok(next),
            false => Err(io::Error::other("the next thread got another stack")),
        }
    }
}

fn park(tell_span: Sender<Span>, ended: Receiver<()>) {
    with_stack_span(|span| {
        if tell_span.send(span).is_ok() {
            let _ = ended.recv(); // until the sender is dropped
        }
    });
}
