//! [`Any`]: the provider that C's caches have, one of several.

use std::io;

use pindown::{Access, Affinity, DeregisterFailed, PageRange, Provider, ProviderCaps, RegisterError};

use super::foreign::{Foreign, ForeignMr};
use crate::key::pindown_key;

use pindown::provider::io_uring::{UringMr, UringProvider};
use pindown::provider::verbs::{Key, Region, Verbs};

#[derive(Debug)]
pub(crate) enum Any {
    Uring(Box<UringProvider>),
    Verbs(Box<Verbs>),
    Foreign(Foreign),
}

/// A registration of the provider of the same name.
#[derive(Debug)]
pub(crate) enum AnyMr {
    Uring(UringMr),
    Verbs(Region),
    Foreign(ForeignMr),
}

/// `$body` with the provider itself.
macro_rules! each {
    ($self:expr, $provider:ident => $body:expr) => {
        match $self {
            Any::Uring($provider) => $body,
            Any::Verbs($provider) => $body,
            Any::Foreign($provider) => $body,
        }
    };
}

fn of_verbs(key: Key) -> pindown_key {
    pindown_key { lkey: key.lkey, rkey: key.rkey, ..Default::default() }
}

fn gave_back_uring(failed: DeregisterFailed<UringMr>) -> DeregisterFailed<AnyMr> {
    DeregisterFailed { mr: AnyMr::Uring(failed.mr), source: failed.source }
}

fn gave_back_verbs(failed: DeregisterFailed<Region>) -> DeregisterFailed<AnyMr> {
    DeregisterFailed { mr: AnyMr::Verbs(failed.mr), source: failed.source }
}

// SAFETY: each call goes to the one provider that this is, which keeps the contract; a registration is made
// by it and comes back to it, since the variant never changes. One that did not would be handed back, still
// registered.
unsafe impl Provider for Any {
    type Mr = AnyMr;
    type Key = pindown_key;

    fn name(&self) -> &'static str {
        each!(self, provider => provider.name())
    }

    fn caps(&self) -> ProviderCaps {
        each!(self, provider => provider.caps())
    }

    fn affinity(&self) -> Affinity {
        each!(self, provider => provider.affinity())
    }

    fn key(&self, mr: &AnyMr) -> pindown_key {
        match (self, mr) {
            (Self::Uring(provider), AnyMr::Uring(mr)) => {
                pindown_key { buf_index: provider.key(mr).buf_index().into(), ..Default::default() }
            }
            (Self::Verbs(provider), AnyMr::Verbs(mr)) => of_verbs(provider.key(mr)),
            (Self::Foreign(provider), AnyMr::Foreign(mr)) => provider.key(mr),
            _ => pindown_key::default(),
        }
    }

    unsafe fn register(&self, range: PageRange, access: Access) -> Result<AnyMr, RegisterError> {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            match self {
                Self::Uring(provider) => provider.register(range, access).map(AnyMr::Uring),
                Self::Verbs(provider) => provider.register(range, access).map(AnyMr::Verbs),
                Self::Foreign(provider) => provider.register(range, access).map(AnyMr::Foreign),
            }
        }
    }

    fn deregister(&self, mr: AnyMr) -> Result<(), DeregisterFailed<AnyMr>> {
        match (self, mr) {
            (Self::Uring(provider), AnyMr::Uring(mr)) => provider.deregister(mr).map_err(gave_back_uring),
            (Self::Verbs(provider), AnyMr::Verbs(mr)) => provider.deregister(mr).map_err(gave_back_verbs),
            (Self::Foreign(provider), AnyMr::Foreign(mr)) => provider.deregister(mr),
            (_, mr) => Err(DeregisterFailed { mr, source: io::ErrorKind::InvalidInput.into() }),
        }
    }

    fn release_at_once(&self, mr: &AnyMr) -> bool {
        match (self, mr) {
            (Self::Uring(provider), AnyMr::Uring(mr)) => provider.release_at_once(mr),
            _ => false,
        }
    }

    fn prefetch(&self, key: pindown_key, range: PageRange, access: Access) -> io::Result<()> {
        match self {
            Self::Uring(_) => Err(io::ErrorKind::Unsupported.into()),
            Self::Verbs(provider) => {
                let key = Key { lkey: key.lkey, rkey: key.rkey };
                Provider::prefetch(&**provider, key, range, access)
            }
            Self::Foreign(provider) => provider.prefetch(key, range, access),
        }
    }

    fn everything_key(&self, access: Access) -> Option<pindown_key> {
        match self {
            Self::Verbs(provider) => provider.everything_key(access).map(of_verbs),
            _ => None,
        }
    }
}
