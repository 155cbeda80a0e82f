//! [`Registration`]: what a request returns.

use crate::hold::{Held, State};
use crate::{Access, PageRange, Provider};

/// A held registration: registered for as long as this (or a clone) lives. Clone to hold it once
/// more; drop to put it, from any thread. Putting is one store and never deregisters, unless the
/// registration is [single-use](Self::is_cached).
pub struct Registration<P: Provider>(Held<P>);

impl<P: Provider> Registration<P> {
    #[inline(always)]
    pub(super) fn new(held: Held<P>) -> Self {
        Self(held)
    }

    pub(super) fn held(&self) -> &Held<P> {
        &self.0
    }

    /// The same, whose put is recorded.
    pub(super) fn recorded(self, id: u64) -> Self {
        Self(self.0.recorded(id))
    }

    /// What goes into the work request.
    #[inline]
    pub fn key(&self) -> P::Key {
        self.0.key()
    }

    /// All that is registered; covers the request.
    pub fn range(&self) -> PageRange {
        self.0.range()
    }

    /// The rights that are registered; serve the request.
    pub fn access(&self) -> Access {
        self.0.access()
    }

    /// Whether its range is known to have changed since it was made: transfers through it move the
    /// old pages. It stays registered until it is put.
    pub fn is_stale(&self) -> bool {
        self.0.state() == State::Stale
    }

    /// Whether later requests can be served by it. `false`: it was made for this request alone,
    /// since its range cannot be kept coherent, and is deregistered when it is put.
    pub fn is_cached(&self) -> bool {
        !self.0.is_single()
    }
}

impl<P: Provider> Clone for Registration<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Provider> std::fmt::Debug for Registration<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration")
            .field("range", &self.range())
            .field("access", &self.access())
            .field("key", &self.key())
            .field("stale", &self.is_stale())
            .field("cached", &self.is_cached())
            .finish()
    }
}
