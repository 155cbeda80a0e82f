//! pindown from C and C++: what `pindown.h` declares.
//!
//! Every function
//!
//! - checks each handle for NULL and for its kind ([`handle`]), and each number for its range;
//! - lets no panic out ([`boundary`]);
//! - returns a `pindown_status`, and leaves the reason with its remedy in `pindown_last_error` ([`last_error`]).
//!
//! Handles are references, boxes and `MaybeUninit` places in the signatures, so that the bodies are safe code:
//! the caller's part (a pointer is NULL or leads to what its type says) is written in the header's preface.
//! The header is made from this source by `cargo xtask header`.

// The exported names are C's; nothing here is an API for Rust, and private modules keep it so.
#![allow(non_camel_case_types, unreachable_pub, private_interfaces)]

mod access;
mod boundary;
mod builder;
mod cache;
mod completion;
mod everything;
mod failure;
mod handle;
mod key;
mod last_error;
mod mapping;
mod notifier;
mod provider;
mod queue;
mod registration;
mod segments;
mod stats;
mod status;
mod submit;
mod versioned;
mod watch;
