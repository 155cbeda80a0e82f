//! [`Registration`]: what a request returns.

use std::sync::Arc;

use super::Inner;
use crate::hold::{Held, State};
use crate::{Access, PageRange, Provider};

/// A held registration: registered for as long as this (or a clone) lives. Clone to hold it once
/// more; drop to put it, from any thread. Putting is one store and never deregisters, unless the
/// registration is [single-use](Self::is_cached).
pub struct Registration<P: Provider> {
    /// `None` only during drop.
    held: Option<Held<P>>,
    /// Who deregisters a single-use registration.
    single: Option<(Arc<Inner<P>>, u32)>,
}

impl<P: Provider> Registration<P> {
    #[inline(always)]
    pub(super) fn cached(held: Held<P>) -> Self {
        Self { held: Some(held), single: None }
    }

    pub(super) fn single(held: Held<P>, inner: Arc<Inner<P>>, index: u32) -> Self {
        Self { held: Some(held), single: Some((inner, index)) }
    }

    #[inline(always)]
    pub(super) fn held(&self) -> &Held<P> {
        self.held.as_ref().expect("held until dropped")
    }

    /// What goes into the work request.
    #[inline]
    pub fn key(&self) -> P::Key {
        self.held().key()
    }

    /// All that is registered; covers the request.
    pub fn range(&self) -> PageRange {
        self.held().range()
    }

    /// The rights that are registered; serve the request.
    pub fn access(&self) -> Access {
        self.held().access()
    }

    /// Whether its range is known to have changed since it was made: transfers through it move the
    /// old pages. It stays registered until it is put.
    pub fn is_stale(&self) -> bool {
        self.held().state() == State::Stale
    }

    /// Whether later requests can be served by it. `false`: it was made for this request alone,
    /// since its range cannot be kept coherent, and is deregistered when it is put.
    pub fn is_cached(&self) -> bool {
        self.single.is_none()
    }
}

impl<P: Provider> Clone for Registration<P> {
    fn clone(&self) -> Self {
        Self { held: self.held.clone(), single: self.single.clone() }
    }
}

impl<P: Provider> Drop for Registration<P> {
    #[inline(always)]
    fn drop(&mut self) {
        drop(self.held.take());
        if self.single.is_some() {
            self.put_single();
        }
    }
}

impl<P: Provider> Registration<P> {
    #[cold]
    fn put_single(&mut self) {
        if let Some((inner, index)) = self.single.take() {
            inner.put_single(index);
        }
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
