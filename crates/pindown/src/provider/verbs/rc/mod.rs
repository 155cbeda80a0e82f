//! Reliable-connected transfers: as much of them as the cache's own tests and tools, and a first
//! program, need. Engines bring their own queues and use [`Verbs`](super::Verbs) alone.
//!
//! An [`Endpoint`] keeps what it transfers held until the work completion, not merely until it
//! is posted.

mod address;
mod announce;
mod endpoint;
mod grant;
mod mover;
mod patience;

pub use address::{Address, AddressError};
pub use announce::{CompletionQueue, CqAnnounce};
pub use endpoint::{Completion, Endpoint, EndpointOptions, RcError, Remote, Request, Segment};
pub use grant::Grant;
pub use mover::Mover;
